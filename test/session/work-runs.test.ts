import { expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { WorkRuns } from '../../src/session/work-runs.ts'

const { signal: never } = new AbortController()

it('a step that is left while it waits for what came before does not begin', async () => {
  const runs = new WorkRuns(never)
  const before = deferred<void>()
  const left = new AbortController()
  let begun = false
  const first = runs.finish(never, () => before.promise)
  const second = runs.finish(left.signal, async () => {
    begun = true
  })
  left.abort()
  before.resolve()
  await first
  await expect(second).rejects.toThrow(StoppedError)
  expect(begun).toBe(false)
  await expect(runs.finish(left.signal, async () => {})).rejects.toThrow(StoppedError)
})

it('a step that is left while it runs is told to stop, and awaited before the next begins', async () => {
  const runs = new WorkRuns(never)
  const end = deferred<void>()
  const left = new AbortController()
  const seen: string[] = []
  const first = runs.finish(left.signal, async (signal) => {
    await end.promise
    seen.push(`first, ${signal.aborted ? 'told to stop' : 'not told'}`)
  })
  const second = runs.finish(never, async (signal) => {
    seen.push(`second, ${signal.aborted ? 'told to stop' : 'not told'}`)
  })
  await new Promise((resolve) => setImmediate(resolve))
  left.abort()
  end.resolve()
  await Promise.all([first, second])
  expect(seen).toEqual(['first, told to stop', 'second, not told'])
})

it('a step that has ended is left without a word to what comes next', async () => {
  const runs = new WorkRuns(never)
  const left = new AbortController()
  await runs.finish(left.signal, async () => {})
  await runs.finish(never, async () => {})
  left.abort()
  expect(runs.signal.aborted).toBe(false)
})
