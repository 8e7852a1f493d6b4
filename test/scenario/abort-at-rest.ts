import { expect, vi } from 'vitest'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** Provides two clusters and helpers for tests of an abort. Call it where vitest allows hooks to be registered. */
export function abortedPair() {
  const pair = pairedSets()

  /** Runs `then` while a commit has blocked the source and is held at a fail point on the destination. */
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
