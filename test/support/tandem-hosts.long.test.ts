import { afterEach, expect, it } from 'vitest'
import { canCommit, commit } from './commits.ts'
import { pairedSets } from './paired-sets.ts'
import { hostPids, keepHosts, stopHosts } from './tandem-hosts.ts'
import { startSync, startTandem } from './tandem-process.ts'

/** Tests of the processes that run one instance after another. */

const pair = pairedSets()

// The long tests do not keep processes, except these.
afterEach(stopHosts)

it('an instance runs in the process of an earlier one, with its own options, state and output', async () => {
  keepHosts()
  const first = await pair.startInstance({ id: 'first' })
  await startSync(first)
  expect(await canCommit(first)).toMatchObject({ mongosyncID: 'first' })
  expect(await first.stop()).toBe(0)
  expect(first.isRunning()).toBe(false)
  expect(first.output()).toMatch(/"message":"stopping".*$/)
  await expect(fetch(first.url)).rejects.toThrow()
  expect(hostPids()).toContain(first.pid)

  await using second = await pair.startInstance({ id: 'second' })
  expect(second.pid).toBe(first.pid)
  expect(hostPids()).not.toContain(second.pid)
  expect(await commit(second)).toMatchObject({ mongosyncID: 'second' })
  expect(second.output()).not.toContain('"mongosyncID":"first"')
})

it('two instances run in two processes, and a killed one is not used again', async () => {
  keepHosts()
  const [first, second] = [await pair.startInstance(), await pair.startInstance({ id: 'other' })]
  expect(second.pid).not.toBe(first.pid)
  await first.kill9()
  expect(first.isRunning()).toBe(false)
  expect(await second.stop()).toBe(0)
  expect(hostPids()).not.toContain(first.pid)
  expect(hostPids()).toContain(second.pid)
})

it('an instance that cannot listen fails with its output, and its process runs others afterwards', async () => {
  keepHosts()
  await using first = await pair.startInstance()
  const port = Number(new URL(first.url).port)
  const uris = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  await expect(startTandem({ ...uris, port, id: 'other', extraArgs: ['--loadLevel', '9'] })).rejects.toThrow(
    /loadLevel/,
  )
  await using second = await pair.startInstance({ id: 'other' })
  expect(second.pid).not.toBe(first.pid)
})

it('an instance has a process of its own if its environment is set, or if processes are not kept', async () => {
  keepHosts()
  {
    await using alone = await pair.startInstance({ env: { TZ: 'Asia/Tokyo' } })
    await alone.stop()
    expect(hostPids()).not.toContain(alone.pid)
  }
  stopHosts()
  const alone = await pair.startInstance()
  await alone.stop()
  expect(hostPids()).not.toContain(alone.pid)
})
