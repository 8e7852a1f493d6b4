import { beforeEach, expect, it } from 'vitest'
import { ReversePosition } from '../../src/commit/reverse-position.ts'
import type { ClusterTime } from '../../src/domain/cluster-time.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { type Member, member } from './peer-members.ts'

const one = oneSet()
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
  leader = member(one, 'a', true)
  await leader.peers.report({ type: 'initialised' })
  await leader.peers.request(plainCommit)
})
let leader: Member

const metadata = () => new Metadata(one.cluster, testContext())
const stored = async (): Promise<ClusterTime> => (await metadata().loadPosition('reverse'))?.time ?? 0n

/** Creates the position as a commit attempt does in the coordinator's term with this epoch. */
function position(epoch: number): ReversePosition {
  const { cluster: destination } = one
  return new ReversePosition({
    destination,
    metadata: metadata(),
    peers: leader.peers,
    context: testContext(),
    coordination: { coordinatorEpoch: epoch },
  })
}

it('every attempt that fails before it enables writes takes a new position', async () => {
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

it('the position no longer changes once an attempt was decided, also in attempts that fail before the decision', async () => {
  await position(1).take()
  // A release that could fail after its decision left this state.
  const stages = one.client.db(metadataDatabase).collection('stages')
  await stages.updateOne({}, { $set: { 'context.writesHeld': false } })
  const before = await stored()
  await position(1).take()
  await position(2).take()
  expect(await stored()).toBe(before)
})

it('a position of an earlier version, which did not store whether it had enabled writes, does not change', async () => {
  await metadata().savePosition('reverse', 1, { kind: 'time', time: 7n })
  await position(2).take()
  expect(await stored()).toBe(7n)
})

it('an attempt takes a position when its predecessor died before it stored one', async () => {
  await leader.peers.report({ type: 'reversal.announced' })
  await position(1).take()
  expect(await stored()).toBeGreaterThan(0n)
})
