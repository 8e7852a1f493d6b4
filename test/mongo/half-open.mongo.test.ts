import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { isTransient } from '../../src/mongo/errors.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { startProxy, type TcpProxy } from '../support/tcp-proxy.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * Simulates a half-open connection, as after a network partition: the server no longer answers, and the socket reports
 * no error.
 */

const one = oneSet()
let proxy: TcpProxy
let behind: Cluster

beforeAll(async () => {
  await one.client.db('app').createCollection('c')
  const [host, port] = (one.set.hosts[0] as string).split(':') as [string, string]
  proxy = await startProxy(host, Number(port))
  behind = testCluster(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
})
afterAll(async () => {
  await behind?.close()
  await proxy?.close()
})

/**
 * A command with a time limit of 500 ms must fail within this time, in ms. The driver's monitoring alone takes at least
 * 10 s (`connectTimeoutMS`) to detect an unreachable server.
 */
const limitedMS = 5_000
const unlimitedMS = 30_000

const collMod = { collMod: 'c', validationLevel: 'strict' }

async function errorOf(command: Promise<unknown>, limitMS = limitedMS): Promise<unknown> {
  const begun = performance.now()
  const error = await command.then(
    () => 'answered',
    (reason) => reason,
  )
  expect(performance.now() - begun).toBeLessThan(limitMS)
  return error
}

describe('on a connection that no longer answers', () => {
  it.each([
    ['a read', limitedMS, () => behind.read('admin', { ping: 1 }, { timeoutMS: 500 })],
    // Commands that may take long, such as index builds, have no time limit. For these the driver's monitoring has to detect
    // that the server does not answer.
    [
      'a command without a time limit',
      unlimitedMS,
      () => behind.write('app', collMod, { timeoutMS: 0, unfenced: true }),
    ],
    [
      'a write',
      limitedMS,
      () => behind.write('app', { insert: 'c', documents: [{}] }, { timeoutMS: 500, unfenced: true }),
    ],
  ])(
    '%s fails with a transient error, and succeeds when the network works again',
    { timeout: 60_000 },
    async (_what, limitMS, command) => {
      await command()
      proxy.blackhole()
      expect(isTransient(await errorOf(command(), limitMS))).toBe(true)
      await proxy.heal()
      await expect.poll(() => command().then(() => 'answered', String), { timeout: 20_000 }).toBe('answered')
    },
  )

  it('reading the next batch of a cursor fails with a transient error', { timeout: 60_000 }, async () => {
    const collection = one.client.db('app').collection<{ _id: number }>('many')
    await collection.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })))
    const cursor = await RawCursor.open(behind, 'app', { find: 'many', batchSize: 10 })
    await cursor.next()
    proxy.blackhole()
    expect(isTransient(await errorOf(cursor.next({ timeoutMS: 500 })))).toBe(true)
    await proxy.heal()
    await cursor.close()
  })
})
