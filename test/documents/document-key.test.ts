import { describe, expect, it } from 'vitest'
import { explore, type Rules, rules, type Servers, type SourceStep } from './document-key-model.ts'

/** Which keys a change removes on the destination, in every interleaving of a small model. */

const all: readonly SourceStep[] = ['update', 'replace', 'replace and rekey', 'move', 'rekey', 'delete']

/** Every sequence of this many steps. A deleted document is inserted again under either key. */
function* sequences(length: number, exists = true): Generator<SourceStep[]> {
  if (length === 0) {
    yield []
    return
  }
  for (const step of exists ? all : (['insert a', 'insert b'] as const)) {
    for (const rest of sequences(length - 1, step !== 'delete')) yield [step, ...rest]
  }
}

const apart: Servers = { rekeyNames: 'the former key', oneShard: false }
const together: Servers = { ...apart, oneShard: true }

/** The first of these sequences after which the destination differs from the source, or null. */
function firstViolation(some: Iterable<SourceStep[]>, crashes: number, servers: Servers, changed: Partial<Rules> = {}) {
  for (const steps of some) {
    const { violation } = explore(steps, crashes, { ...rules, ...changed }, servers)
    if (violation) return { steps, violation }
  }
  return null
}

describe('the documents of a keyed collection', () => {
  // Each beginning is a test of its own, so that none takes long.
  it.each([...sequences(2)].flatMap((begun) => [apart, together].map((servers) => ({ begun, ...servers }))))(
    'are those of the source after three changes: %o',
    ({ begun, ...servers }) => {
      const some = [...sequences(3)].filter((steps) => begun.every((step, at) => steps[at] === step))
      expect(some.length).toBeGreaterThan(0)
      expect(firstViolation(some, 0, servers)).toBeNull()
    },
  )

  it('are those of the source after two changes and a crash', () => {
    for (const servers of [apart, together]) expect(firstViolation(sequences(2), 1, servers)).toBeNull()
  })

  it.each<Partial<Rules>>([{ missing: 'removed' }, { others: 'kept' }])('need every rule: %o', (changed) => {
    expect(firstViolation(sequences(3), 0, apart, changed)).not.toBeNull()
  })

  it('need the former key in the event of a change of the key on one shard, as 6.0 writes it', () => {
    const servers: Servers = { ...apart, rekeyNames: 'the new key' }
    expect(firstViolation([['move', 'replace and rekey', 'rekey']], 0, servers)).not.toBeNull()
  })
})
