import { expect, test } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { expectBulkReads } from './secondary-reads.ts'

/** A whole sync reads the secondaries of a source with three members (`--copyReadPreference secondaryPreferred`). */

const pair = pairedSets({ source: { members: 3 } })

test('with secondaryPreferred, only secondaries answer the reads of the copy and the verifier, and both clusters become equal', () =>
  expectBulkReads(pair, 'secondaryPreferred', { primary: 0, secondaries: expect.any(Number) }))
