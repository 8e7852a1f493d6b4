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

const layouts = [
  { rekeyNames: 'the former key', oneShard: false },
  { rekeyNames: 'the former key', oneShard: true },
  { rekeyNames: 'the new key', oneShard: false },
] as const satisfies readonly Servers[]

describe('the documents of a keyed collection', () => {
  it.each([
    ['three changes', 3, 0],
    ['three changes and a crash', 3, 1],
    ['four changes', 4, 0],
  ])('are those of the source after %s', (_what, length, crashes) => {
    let quiet = 0
    for (const steps of sequences(length)) {
      for (const servers of layouts) {
        const found = explore(steps, crashes, rules, servers)
        expect(found.violation, JSON.stringify([steps, servers])).toBeNull()
        quiet += found.quiet
      }
    }
    expect(quiet).toBeGreaterThan(1_000)
  })

  it.each<[keyof Rules, Partial<Rules>]>([
    ['missing', { missing: 'removed' }],
    ['others', { others: 'kept' }],
  ])('need the rule %s', (_rule, change) => {
    const broken = [...sequences(3)].find(
      (steps) => explore(steps, 0, { ...rules, ...change }, layouts[0]).violation !== null,
    )
    expect(broken).toBeDefined()
  })
})
