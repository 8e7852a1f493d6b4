import { expect } from 'vitest'
import { commit } from './commits.ts'
import { compareBoth } from './compare-both.ts'
import type { PairedSets } from './paired-sets.ts'
import type { Tandem } from './tandem-process.ts'

/** Commits the sync as soon as it can be committed, and expects both clusters to be equal when it is COMMITTED. */
export async function commitEqual(tandem: Tandem, { source, destination }: PairedSets): Promise<void> {
  await commit(tandem)
  expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
}
