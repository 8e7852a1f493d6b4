import { expect } from 'vitest'
import { compareBoth } from './compare-both.ts'
import { accepted, committed, readyToCommit } from './cutover.ts'
import type { PairedSets } from './paired-sets.ts'
import type { Tandem } from './tandem-process.ts'

/** Commits the sync as soon as it can be committed, and expects both clusters to be equal when it is COMMITTED. */
export async function commitEqual(tandem: Tandem, { source, destination }: PairedSets): Promise<void> {
  await readyToCommit(tandem, 120)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
}
