import { expect, test } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { expectBulkReads } from './secondary-reads.ts'

/** A whole sync that reads only the primary of a source with three members, which is the default. */

const pair = pairedSets({ source: { members: 3 } })

test('with primary, those members answer the copy and the first verification under a workload, and all is equal', () =>
  expectBulkReads(pair, 'primary', { primary: expect.any(Number), secondaries: 0 }))
