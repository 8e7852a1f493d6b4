import { expect, test } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { expectBulkReads } from './secondary-reads.ts'

/** A whole sync that reads only the primary (the default) of a source with three members. */

const pair = pairedSets({ source: { members: 3 } })

test('with primary, only the primary answers the bulk reads under a workload, and both clusters are equal', () =>
  expectBulkReads(pair, 'primary', { primary: expect.any(Number), secondaries: 0 }))
