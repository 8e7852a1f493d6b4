import { expect, test } from 'vitest'
import { seedData } from '../support/seed-data.ts'
import { canCommit, commit, ShardedPair, start } from '../support/sharded-pair.ts'
import { createWorkload } from '../support/workload.ts'

const pair = new ShardedPair({}, {})
const seed = process.env['TANDEM_SEED'] ?? 'general'

test('unsharded collections of every kind are synced through mongos, with DDL, as between replica sets', async () => {
  await seedData(pair.sourceUri, seed, 0.1)
  const workload = createWorkload({ uri: pair.sourceUri, seed, ddl: true, transactions: false })
  const tandem = await pair.startTandem()
  await workload.runSteps(10)
  expect(await start(tandem)).toEqual({ status: 200, body: { success: true } })
  await workload.runSteps(60)
  await canCommit(tandem)
  await workload.runSteps(40)
  await commit(tandem)
  await pair.expectEqual()
})
