import { expect, vi } from 'vitest'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** Two clusters, and the parts of a test of an abort. Registers hooks, so it must run where vitest allows that. */
export function abortedPair() {
  const pair = pairedSets()

  /** Runs `then` during a commit that has blocked the source and waits on the destination; releases the commit at the end. */
  async function duringCommit(tandem: Tandem, then: () => Promise<void>): Promise<void> {
    await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.expiring')
    expect(await tandem.post('commit')).toEqual(accepted)
    await held.reached()
    expect(await writesBlocked(pair.sourceClient)).toBe(true)
    await then()
  }

  async function ready(): Promise<Tandem> {
    await seedForCutover(pair.sourceClient)
    const tandem = await pair.startInstance()
    await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination' })
    await canCommit(tandem)
    return tandem
  }

  const unblocked = () =>
    vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(false), {
      timeout: 20_000,
      interval: 20,
    })

  async function expectCommits(tandem: Tandem): Promise<void> {
    await commit(tandem)
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  }

  return { pair, duringCommit, ready, unblocked, expectCommits }
}
