import { describe, expect, it } from 'vitest'
import { explore, type Rules, rules, type Servers, type SourceStep } from './document-key-model.ts'

/** Tests in every interleaving of a small model which keys of a document a change removes on the destination. */

const all: readonly SourceStep[] = ['update', 'replace', 'replace and rekey', 'move', 'rekey', 'delete']

/** Yields every sequence of this many steps. After a delete, the document is inserted again under either key. */
function* sequences(length: number, exists = true): Generator<SourceStep[]> {
  if (length === 0) {
    yield []
    return
  }
  for (const step of exists ? all : (['insert a', 'insert b'] as const)) {
    for (const rest of sequences(length - 1, step !== 'delete')) yield [step, ...rest]
  }
}

const apart: Servers = { rekeyNames: 'the former key', shardOf: { a: 0, b: 1, c: 2 } }
const together: Servers = { ...apart, shardOf: { a: 0, b: 0, c: 0 } }
const likeSource: Servers = { ...apart, shardOf: { a: 0, b: 1, c: 0 } }

/** Returns the first of these sequences after which the destination differs from the source, or null. */
function firstViolation(some: Iterable<SourceStep[]>, crashes: number, servers: Servers, changed: Partial<Rules> = {}) {
  for (const steps of some) {
    const { violation } = explore(steps, crashes, { ...rules, ...changed }, servers)
    if (violation) return { steps, violation }
  }
  return null
}

describe('the documents of a keyed collection', () => {
  // Each pair of first changes is a test of its own, so that no test takes long.
  it.each([...sequences(2)].flatMap((begun) => [apart, together].map((servers) => ({ begun, ...servers }))))(
    'equal those of the source after three changes: %o',
    ({ begun, ...servers }) => {
      const some = [...sequences(3)].filter((steps) => begun.every((step, at) => steps[at] === step))
      expect(some.length).toBeGreaterThan(0)
      expect(firstViolation(some, 0, servers)).toBeNull()
    },
  )

  it('equal those of the source after two changes and a crash', () => {
    for (const servers of [apart, together]) expect(firstViolation(sequences(2), 1, servers)).toBeNull()
  })

  it.each<Partial<Rules>>([{ missing: 'removed' }, { others: 'kept' }, { foldedInsert: 'inserted' }])(
    'may differ from those of the source without one of the rules: %o',
    (changed) => {
      expect(firstViolation(sequences(3), 0, apart, changed)).not.toBeNull()
    },
  )

  it('do not stay under a former key if they are inserted again, get another key and are deleted', () => {
    const steps: SourceStep[] = ['delete', 'insert a', 'rekey', 'delete']
    for (const servers of [apart, together]) expect(firstViolation([steps], 0, servers)).toBeNull()
    expect(firstViolation([steps], 0, apart, { foldedInsert: 'inserted' })).not.toBeNull()
  })

  it('may differ if the event of a key change on one shard does not name the former key, as it does in 6.0', () => {
    const servers: Servers = { ...apart, rekeyNames: 'the new key' }
    expect(firstViolation([['move', 'replace and rekey', 'rekey']], 0, servers)).not.toBeNull()
  })
})

const several: readonly SourceStep[] = [
  ...(['insert a', 'insert b', 'update a', 'update b', 'replace a', 'replace b', 'delete a', 'delete b'] as const),
  ...(['move a', 'move b', 'rekey a', 'rekey c', 'update c', 'delete c'] as const),
]
const both = { a: 1, b: 1, c: null }

describe('several documents with one _id', () => {
  function firstViolation(length: number, crashes: number, servers: Servers, changed: Partial<Rules> = {}, every = 1) {
    let sequences: SourceStep[][] = [[]]
    for (let at = 0; at < length; at++)
      sequences = sequences.flatMap((begun) => several.map((step) => [...begun, step]))
    for (const steps of sequences.filter((_, at) => at % every === 0)) {
      const { violation } = explore(steps, crashes, { ...rules, ...changed }, servers, both)
      if (violation) return { steps, violation }
    }
    return null
  }

  it.each([apart, likeSource])('equal those of the source after two changes and a crash: %o', (servers) => {
    expect(firstViolation(2, 1, servers)).toBeNull()
  })

  it.each([apart, likeSource])('equal those of the source after three changes: %o', (servers) => {
    // A prime number, so that the sample contains every step at every position.
    expect(firstViolation(3, 0, servers, {}, 11)).toBeNull()
  })

  it.each<Partial<Rules>>([{ several: 'the first' }, { deleted: 'all that the destination has' }, { others: 'kept' }])(
    'may differ from those of the source without one of the rules: %o',
    (changed) => {
      expect(firstViolation(3, 0, apart, changed)).not.toBeNull()
    },
  )

  it('may be lost after a crash if one is written before all of them are read', () => {
    expect(firstViolation(1, 1, apart, { complete: false })).not.toBeNull()
    expect(firstViolation(1, 1, apart)).toBeNull()
  })
})
