import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, RawCursor } from '../../src/mongo/cluster.ts'
import { isTransient } from '../../src/mongo/errors.ts'
import { startProxy, type TcpProxy } from '../support/tcp-proxy.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** A connection that stays and answers no more, as after a network was parted: no error ever comes by itself. */

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

/** Of a command with a limit of half a second; the driver finds a server that is gone only after ten. */
const limitedMS = 5_000
const unlimitedMS = 30_000

const collMod = { collMod: 'c', validationLevel: 'strict' }

async function fails(work: Promise<unknown>, patienceMS = limitedMS): Promise<unknown> {
  const begun = performance.now()
  const error = await work.then(
    () => 'answered',
    (reason) => reason,
  )
  expect(performance.now() - begun).toBeLessThan(patienceMS)
  return error
}

describe('on a connection that answers no more', () => {
  it.each([
    ['a read', limitedMS, () => behind.read('admin', { ping: 1 }, { timeoutMS: 500 })],
    // Definitions take as long as they take: here it is the driver's own look at the server that finds nothing there.
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
    '%s ends by itself, as something to be tried again; then it goes on',
    { timeout: 60_000 },
    async (_what, patienceMS, work) => {
      await work()
      proxy.blackhole()
      expect(isTransient(await fails(work(), patienceMS))).toBe(true)
      await proxy.heal()
      await expect.poll(() => work().then(() => 'answered', String), { timeout: 20_000 }).toBe('answered')
    },
  )

  it('so does the next batch of a cursor', { timeout: 60_000 }, async () => {
    const collection = one.client.db('app').collection<{ _id: number }>('many')
    await collection.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })))
    const cursor = await RawCursor.open(behind, 'app', { find: 'many', batchSize: 10 })
    await cursor.next()
    proxy.blackhole()
    expect(isTransient(await fails(cursor.next({ timeoutMS: 500 })))).toBe(true)
    await proxy.heal()
    await cursor.close()
  })
})
