import type { Document } from 'mongodb'
import { expect, it } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** A start of a new sync takes the lease without reading it first, because none should be stored. */

const one = oneSet()

async function takenBy(name: string, incarnation: string): Promise<{ epoch: number; stored: Document | null }> {
  const context = testContext()
  const lease = new Lease(one.cluster, name, { id: 'a', incarnation }, context)
  lease.expect(undefined)
  try {
    await lease.acquire()
    const leases = one.client.db(metadataDatabase).collection<{ _id: string } & Document>('leases')
    return { epoch: lease.epoch, stored: await leases.findOne({ _id: name }) }
  } finally {
    await lease.release()
    context.stop()
  }
}

it('a lease that is expected not to exist is taken in its first term', async () => {
  const { epoch, stored } = await takenBy('new', 'own')
  expect(epoch).toBe(1)
  expect(stored).toMatchObject({ owner: 'a', incarnation: 'own', epoch: 1, settled: 1, predecessors: [] })
})

it('a lease that exists nevertheless is taken in its next term, also by the process that had its first', async () => {
  expect((await takenBy('old', 'own')).epoch).toBe(1)
  const { epoch, stored } = await takenBy('old', 'own')
  expect(epoch).toBe(2)
  expect(stored).toMatchObject({ epoch: 2, settled: 2 })
})
