import { expect, it } from 'vitest'
import type { Journal } from '../../src/domain/journal.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** As docs/logs.md says, `lease lost` has the lease, the epoch and the reason, and is logged once for each lost term. */

const one = oneSet()

it.each([
  ['evicted', { epoch: 2, buried: true }],
  ['taken', { epoch: 2, owner: 'b', incarnation: 'another' }],
])('a lost lease is logged once: %s', async (reason, change) => {
  const logged: unknown[] = []
  const journal: Journal = (message, fields) => message === 'lease lost' && logged.push(fields)
  const context = { ...testContext(), journal }
  const lease = new Lease(one.cluster, reason, { id: 'a', incarnation: 'own' }, context)
  try {
    await lease.acquire()
    await lease.verify()
    expect(logged).toEqual([])
    await one.client
      .db(metadataDatabase)
      .collection<{ _id: string }>('leases')
      .updateOne({ _id: reason }, { $set: change })
    await lease.verify()
    await lease.verify()
    expect(logged).toEqual([{ lease: reason, epoch: 1, reason }])
    expect(lease.held).toBe(false)
  } finally {
    context.stop()
    await lease.release()
  }
})
