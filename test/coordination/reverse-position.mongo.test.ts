import { beforeEach, expect, it } from 'vitest'
import { ReversePosition } from '../../src/commit/reverse-position.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { type Member, member } from './peer-members.ts'

const one = oneSet()
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
  leader = member(one, 'a', true)
  await leader.team.report({ type: 'initialised' })
  await leader.team.request(plainCommit)
})
let leader: Member

const metadata = () => new Metadata(one.cluster, testContext())
const stored = async (): Promise<ClusterTime> => (await metadata().loadPosition('reverse'))?.time ?? 0n

/** As each attempt to commit has it, whoever leads it. */
function position(epoch: number): ReversePosition {
  const { cluster: destination } = one
  return new ReversePosition({
    destination,
    metadata: metadata(),
    peers: leader.team,
    context: testContext(),
    coordination: { coordinatorEpoch: epoch },
  })
}

it('is taken anew by every attempt that fails before it allows writes', async () => {
  const times: ClusterTime[] = []
  for (const epoch of [1, 1, 2]) {
    await position(epoch).take()
    times.push(await stored())
  }
  const [first = 0n, second = 0n, third = 0n] = times
  expect(first).toBeGreaterThan(0n)
  expect(second).toBeGreaterThan(first)
  expect(third).toBeGreaterThan(second)
})

it('stays for good once an attempt has come to allowing them, through attempts that fail before that', async () => {
  await position(1).take()
  // As a release left it that could fail after its decision.
  const stages = one.client.db('tandem_internal').collection('stages')
  await stages.updateOne({}, { $set: { 'context.writesHeld': false } })
  const before = await stored()
  await position(1).take()
  await position(2).take()
  expect(await stored()).toBe(before)
})

it('stays when an earlier version took it, which did not say whether it came to allowing writes', async () => {
  await metadata().savePosition('reverse', 1, { kind: 'time', time: 7n })
  await position(2).take()
  expect(await stored()).toBe(7n)
})

it('is taken by an attempt whose predecessor died before it had stored one', async () => {
  await leader.team.report({ type: 'reversal.noted' })
  await position(1).take()
  expect(await stored()).toBeGreaterThan(0n)
})
