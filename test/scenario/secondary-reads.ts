import { MongoClient } from 'mongodb'
import { expect } from 'vitest'
import { commitEqual } from '../support/commit-equal.ts'
import { loadBulk } from '../support/load-bulk.ts'
import type { PairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

const seed = process.env['TANDEM_SEED'] ?? 'secondaries'
const documents = 40_000

interface Answered {
  primary: number
  secondaries: number
}

/** Counts the getMore commands on `bulk.documents`. Only bulk reads, which are reads of whole ranges, need several batches. */
async function continued({ source }: PairedSets): Promise<Answered> {
  const sum: Answered = { primary: 0, secondaries: 0 }
  for (const uri of source.uris) {
    await using member = await MongoClient.connect(uri)
    const admin = member.db('admin')
    const { totals } = await admin.command({ top: 1 })
    const { isWritablePrimary } = await admin.command({ hello: 1 })
    sum[isWritablePrimary ? 'primary' : 'secondaries'] += totals['bulk.documents']?.getmore.count ?? 0
  }
  return sum
}

/** Runs a whole sync under a workload, and expects that the given members of the source answer its bulk reads. */
export async function expectBulkReads(
  pair: PairedSets,
  mode: 'primary' | 'secondaryPreferred',
  by: Record<keyof Answered, unknown>,
): Promise<void> {
  await seedData(pair.source.uri, seed, 0.1)
  await loadBulk(pair.source.uri, 'bulk', documents)
  const workload = createWorkload({ uri: pair.source.uri, seed, ddl: true, transactions: true })
  const changed = pair.sourceClient.db('bulk').collection<{ _id: number }>('documents')
  const tandem = await pair.startInstance({ env: { TANDEM_COPY_READ_PREFERENCE: mode } })
  const before = await continued(pair)
  await startSync(tandem)
  for (let step = 0; step < 10; step++) {
    await workload.runSteps(10)
    const from = step * 4_000
    await changed.deleteMany({ _id: { $gte: from, $lt: from + 200 } })
    await changed.updateMany({ _id: { $gte: from + 200, $lt: from + 400 } }, { $set: { step } })
  }
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 240, what: 'canCommit' })
  const after = await continued(pair)
  const [primary, secondaries] = [after.primary - before.primary, after.secondaries - before.secondaries]
  expect({ primary, secondaries }).toEqual(by)
  // The copy reads more than ten batches. The verifier reads at least two, because its batches grow with the round trip time.
  expect(primary + secondaries).toBeGreaterThan(12)
  await workload.runSteps(20)
  await commitEqual(tandem, pair)
  await tandem.stop()
}
