import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { type Any, changeEachKind, seedEachKind } from '../support/changes-of-each-kind.ts'
import { canCommit, commit } from '../support/commits.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf, loseHistory, smallOplog } from '../support/lost-history.ts'
import { ReversiblePair, reverse, reversible, things } from '../support/reversible-pair.ts'

/** A reversal converges all collections if the oplog of the new source no longer reaches back to the commit. */

const pair = new ReversiblePair(smallOplog(6))

test.each([true, false])(
  'facts 2.5: a reversal converges all changes if the oplog of the new source does not reach back to the commit (verification: %s)',
  async (enabled) => {
    await seedEachKind(pair.leftClient)
    await using tandem = await pair.commitSync({ ...reversible, verification: { enabled } })
    await changeEachKind(pair.rightClient)
    await loseHistory(pair.rightClient)
    expect(await pair.leftClient.db('app').collection('dropped').countDocuments()).toBe(200)

    // Users write while the reversal converges.
    const changed = pair.rightClient.db('app').collection<Any>('changed')
    const ended = new AbortController()
    const writing = (async () => {
      for (let at = 0; !ended.signal.aborted; at++) {
        await changed.updateOne({ _id: `written ${at % 20}` }, { $inc: { times: 1 } }, { upsert: true })
        await changed.deleteOne({ _id: `written ${(at + 10) % 20}` })
        await sleep(5)
      }
    })()
    const reversed = await reverse(tandem).finally(() => ended.abort())
    await writing
    expect(reversed).toMatchObject({ state: 'RUNNING', canWrite: false })
    expect(reversed.directionMapping?.Source).toMatch(/^cluster1/)
    expect(await convergencesOf(pair.leftClient)).toBe(1)
    await commit(tandem)
    await pair.expectEqual()

    // The oplog contains the position of this commit, so the second reversal copies nothing.
    await things(pair.leftClient).insertOne({ _id: 'again' })
    await reverse(tandem)
    await commit(tandem)
    await pair.expectEqual()
    expect([await convergencesOf(pair.rightClient), await pair.generations()]).toEqual([0, [null, 2]])
  },
)

test('a reversal converges all collections if the commit has stored no position from which the reversal can continue', async () => {
  await seedEachKind(pair.leftClient)
  await using tandem = await pair.commitSync()
  await changeEachKind(pair.rightClient)
  await pair.rightClient.db(metadataDatabase).collection<Any>('positions').deleteOne({ _id: 'reverse' })
  await reverse(tandem)
  expect(await convergencesOf(pair.leftClient)).toBe(1)
  await things(pair.rightClient).insertOne({ _id: 'later' })
  await commit(tandem)
  await pair.expectEqual()
})

test('facts 2.5: of two instances that reverse, one requests the convergence of all collections, and both continue', async () => {
  await seedEachKind(pair.leftClient)
  await using all = await startInstances(['a', 'b'], { cluster0: pair.left.uri, cluster1: pair.right.uri })
  const members = [...all.members.values()]
  expectAccepted(await all.post('start', { source: 'cluster0', destination: 'cluster1', ...reversible }))
  await Promise.all(members.map(canCommit))
  expectAccepted(await all.post('commit'))
  await all.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  await changeEachKind(pair.rightClient)
  await loseHistory(pair.rightClient)

  expectAccepted(await all.post('reverse'))
  await Promise.all(members.map(canCommit))
  expect(await convergencesOf(pair.leftClient)).toBe(1)
  expectAccepted(await all.post('commit'))
  await all.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  await pair.expectEqual()
})
