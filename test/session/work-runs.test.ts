import { expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import type { Replication } from '../../src/session/replication.ts'
import { WorkRuns } from '../../src/session/work-runs.ts'

const { signal: never } = new AbortController()

it('a step does not begin if the state machine leaves it while it waits for earlier runs', async () => {
  const runs = new WorkRuns(never)
  const before = deferred<void>()
  const leaving = new AbortController()
  let begun = false
  const first = runs.finish(never, () => before.promise)
  const second = runs.finish(leaving.signal, async () => {
    begun = true
  })
  leaving.abort()
  before.resolve()
  await first
  await expect(second).rejects.toThrow(StoppedError)
  expect(begun).toBe(false)
  await expect(runs.finish(leaving.signal, async () => {})).rejects.toThrow(StoppedError)
})

it('a running step that the state machine leaves is stopped, and the next step begins after its end', async () => {
  const runs = new WorkRuns(never)
  const end = deferred<void>()
  const leaving = new AbortController()
  const ran: string[] = []
  const first = runs.finish(leaving.signal, async (signal) => {
    await end.promise
    ran.push(`first, ${signal.aborted ? 'told to stop' : 'not stopped'}`)
  })
  const second = runs.finish(never, async (signal) => {
    ran.push(`second, ${signal.aborted ? 'told to stop' : 'not stopped'}`)
  })
  await new Promise((resolve) => setImmediate(resolve))
  leaving.abort()
  end.resolve()
  await Promise.all([first, second])
  expect(ran).toEqual(['first, told to stop', 'second, not stopped'])
})

it('leaving a step that has already ended does not stop later runs', async () => {
  const runs = new WorkRuns(never)
  const leaving = new AbortController()
  await runs.finish(leaving.signal, async () => {})
  await runs.finish(never, async () => {})
  leaving.abort()
  expect(runs.signal.aborted).toBe(false)
})

it('a replication does not begin if the state machine leaves it before its turn', async () => {
  const runs = new WorkRuns(never)
  const worker = deferred<void>()
  const [former, next] = [{ events: {} }, { events: null }] as unknown as [Replication, Replication]
  await runs.replicate('copy', async () => former)
  runs.awaitBeforeNext(worker.promise)
  runs.leaveReplication()
  let begun = false
  const second = runs.replicate('copy', async () => {
    begun = true
    return next
  })
  runs.leaveReplication()
  worker.resolve()
  await expect(second).rejects.toThrow(StoppedError)
  expect([begun, runs.isOpen]).toEqual([false, false])
})

it('both workers share a replication, which begins after all earlier runs have ended', async () => {
  const runs = new WorkRuns(never)
  const [worker, opened] = [deferred<void>(), deferred<void>()]
  const [former, next] = [{ events: {} }, { events: null }] as unknown as [Replication, Replication]
  const first = runs.replicate('copy', async () => former)
  expect(await runs.replicate('events', async () => next)).toBe(former)
  runs.latest = former
  runs.awaitBeforeNext(worker.promise)
  expect([await first, runs.isOpen, runs.current]).toEqual([former, true, former])
  runs.leaveReplication()
  expect([runs.isOpen, runs.current, runs.signal.aborted]).toEqual([false, null, true])
  let signalled: AbortSignal | null = null
  const second = runs.replicate('copy', async (signal) => {
    signalled = signal
    opened.resolve()
    return next
  })
  await new Promise((resolve) => setImmediate(resolve))
  expect([runs.isOpen, runs.current, signalled]).toEqual([true, null, null])
  worker.resolve()
  await opened.promise
  expect([await second, runs.current, former.events]).toEqual([next, next, null])
  expect([(signalled as unknown as AbortSignal).aborted, runs.renewals]).toEqual([false, 1])
})
