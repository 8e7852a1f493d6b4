import { expect, test } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { expectBulkReads } from './secondary-reads.ts'

/** A whole sync reads only the primary (the default) of a source with three members. */

const pair = pairedSets({ source: { members: 3 } })

test('with primary, only the primary answers the reads of the copy and the verifier, and both clusters become equal', () =>
  expectBulkReads(pair, 'primary', { primary: expect.any(Number), secondaries: 0 }))
