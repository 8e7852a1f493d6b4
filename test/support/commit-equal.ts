import { expect } from 'vitest'
import { compareBoth } from './compare-both.ts'
import type { PairedSets } from './paired-sets.ts'
import type { Tandem } from './tandem-process.ts'

/** Commits the sync as soon as it can be committed, and expects both clusters to be equal when it is COMMITTED. */
export async function commitEqual(tandem: Tandem, { source, destination }: PairedSets): Promise<void> {
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 120, what: 'canCommit' })
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
  expect((await compareBoth(source.uri, destination.uri)).differences).toEqual([])
}
