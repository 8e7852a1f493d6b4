import { expect, it } from 'vitest'
import { accepted, canCommit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { rowsOf } from '../support/rows.ts'
import { startSync } from '../support/tandem-process.ts'

/** A TTL monitor deletes documents on the source during the commit. verification-commit.cluster.test.ts tests few such deletes. */

const pair = pairedSets()

it('README: more deletes by TTL during the commit than the verifier holds at once are applied too', async () => {
  // The test itself deletes the documents, because the TTL monitors would take longer.
  const enableMonitors = async (ttlMonitorEnabled: boolean): Promise<void> => {
    for (const client of [pair.sourceClient, pair.destinationClient]) {
      await client.db('admin').command({ setParameter: 1, ttlMonitorEnabled })
    }
  }
  await enableMonitors(false)
  try {
    const sessions = rowsOf(pair.sourceClient, 'sessions')
    await sessions.createIndex({ at: 1 }, { expireAfterSeconds: 0 })
    // The commit is held where it prepares this unique index, which happens before the verdict.
    await sessions.createIndex({ u: 1 }, { unique: true })
    const count = 60_500
    await sessions.insertMany(Array.from({ length: count }, (_, _id) => ({ _id, u: _id, at: new Date(1_000) })))
    await using tandem = await pair.startInstance()
    await startSync(tandem, { verification: { enabled: true } })
    await tandem.waitFor(({ verification }) => verification?.source.hashedDocumentCount === count, {
      timeoutSeconds: 60,
      what: 'counted',
    })
    await canCommit(tandem)
    await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.sessions')
    expect(await tandem.post('commit')).toEqual(accepted)
    await held.reached()
    await sessions.deleteMany({})
    await held.release()
    // This takes ten seconds. It takes much longer on a busy machine, because tandem stores each recheck that stays open for five seconds.
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 240, what: 'committed' })
    expect(await rowsOf(pair.destinationClient, 'sessions').countDocuments()).toBe(0)
    expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  } finally {
    await enableMonitors(true)
  }
})
