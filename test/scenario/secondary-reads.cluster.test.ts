import { expect, test } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { expectBulkReads } from './secondary-reads.ts'

/** A whole sync that reads secondaries of a source with three members (`--copyReadPreference secondaryPreferred`). */

const pair = pairedSets({ source: { members: 3 } })

test('with secondaryPreferred, only secondaries answer the bulk reads under a workload, and both clusters are equal', () =>
  expectBulkReads(pair, 'secondaryPreferred', { primary: 0, secondaries: expect.any(Number) }))
