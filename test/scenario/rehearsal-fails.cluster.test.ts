import { expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/**
 * Tests docs/commit.md: any failure during a rehearsal ends the rehearsal with a verdict. The sync then returns to RUNNING by
 * itself, unless the same failure would also stop it without a rehearsal.
 */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 50 }

async function ready(): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance()
  await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination' })
  await canCommit(tandem)
  return tandem
}

/** Rehearses the commit, and resolves with the progress once the rehearsal has ended and the source accepts writes. */
async function rehearse(tandem: Tandem): Promise<Progress> {
  expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
  return await vi.waitFor(async () => {
    const progress = await tandem.progress()
    expect(progress.lastRehearsal).toBeDefined()
    expect(progress.state).not.toBe('COMMITTING')
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
    return progress
  }, patience)
}

async function expectCommits(tandem: Tandem): Promise<void> {
  await commit(tandem)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

it.each([
  ['without a name', 'destination', 'collMod', 9, 'InternalError'],
  ['before the commit timestamp', 'source', 'setUserWriteBlockMode', 13, 'MissingPrivileges'],
] as const)('a rehearsal ends with a verdict after an error %s', async (_what, side, command, errorCode, verdict) => {
  await using tandem = await ready()
  const client = side === 'source' ? pair.sourceClient : pair.destinationClient
  await failPoint(client, 'failCommand', { failCommands: [command], errorCode }, { times: 1 })
  const { state, lastRehearsal, warnings } = await rehearse(tandem)
  expect(state).toBe('RUNNING')
  expect(lastRehearsal).toMatchObject({ verdict })
  expect(warnings).toContainEqual(expect.stringMatching(`^the rehearsal would have failed with ${verdict}`))
  expect(tandem.output()).toMatch(new RegExp(`"level":"error".*"error":"${verdict}".*"rehearsal failed"`))
  await expectCommits(tandem)
})

it('a rehearsal ends with a verdict when the application of changes fails, and the sync shows that failure', async () => {
  await using tandem = await ready()
  await failPoint(pair.sourceClient, 'failCommand', { failCommands: ['appendOplogNote'], errorCode: 91 })
  expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
  await vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(true), patience)
  // This fail point replaces the one above, so tandem can take the commit timestamp now.
  await using _ = await failPoint(pair.sourceClient, 'failCommand', {
    failCommands: ['getMore', 'aggregate'],
    errorCode: 286,
  })
  const isOver = ({ state, lastRehearsal }: Progress) => state === 'FAILED' && lastRehearsal !== undefined
  const progress = await vi.waitFor(async () => {
    const now = await tandem.progress()
    expect(isOver(now)).toBe(true)
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
    return now
  }, patience)
  expect(progress.failure?.error).toBe('OplogWindowLost')
  expect(progress.lastRehearsal).toMatchObject({ verdict: 'OplogWindowLost' })
})
