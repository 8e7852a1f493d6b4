import { afterEach, expect, it } from 'vitest'
import { canCommit, commit } from './commits.ts'
import { pairedSets } from './paired-sets.ts'
import { hostPids, keepHosts, stopHosts } from './tandem-hosts.ts'
import { startSync, startTandem } from './tandem-process.ts'

/** Tests of the processes that run one instance after another. */

const pair = pairedSets()

// The long tests do not keep processes, except these.
afterEach(stopHosts)

it('an instance runs in the process of an earlier one, with its own options and output, and continues its sync', async () => {
  keepHosts()
  const first = await pair.startInstance({ extraArgs: ['--loadLevel', '2'] })
  await startSync(first)
  await canCommit(first)
  expect(await first.stop()).toBe(0)
  expect(first.isRunning()).toBe(false)
  expect(first.output()).toContain('"message":"lease given back"')
  await expect(fetch(first.url)).rejects.toThrow()
  expect(hostPids()).toContain(first.pid)

  await using second = await pair.startInstance({ extraArgs: ['--loadLevel', '4'] })
  expect(second.pid).toBe(first.pid)
  expect(hostPids()).not.toContain(second.pid)
  await commit(second)
  expect(second.output()).toContain('"loadLevel":4')
  expect(second.output()).not.toContain('"loadLevel":2')
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

it('a program that ends before it serves fails with its output, and its process runs others afterwards', async () => {
  keepHosts()
  const uris = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  await expect(startTandem({ ...uris, extraArgs: ['--loadLevel', '9'] })).rejects.toThrow(
    /tandem exited with 2 before it listened\n[\s\S]*--loadLevel/,
  )
  const pids = hostPids()
  await using tandem = await pair.startInstance()
  expect(pids).toContain(tandem.pid)
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
