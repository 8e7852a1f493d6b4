import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { runCorruption } from '../faults/corruption-run.ts'
import { type Corruption, corruptions, type Phase } from '../faults/corruptions.ts'

let pair: Pair
beforeAll(async () => {
  pair = await startPair()
})
afterAll(() => pair?.[Symbol.asyncDispose]())

/**
 * A sample of the corruptions of `npm run mutations`: damaged documents and definitions, a lost event, and a change that the
 * source then overwrites. The sample contains each phase.
 */
const sample: [Phase, string, 'reported' | 'gone'][] = [
  ['copying', 'a missing document', 'reported'],
  ['copying', 'a foreign document in the place of one that is copied later', 'reported'],
  ['hashing', 'a lost update', 'reported'],
  ['hashing', '_id spelled as another number type', 'reported'],
  ['applying', 'double for int32', 'reported'],
  ['applying', 'another content that the source then writes again', 'gone'],
  ['committing', 'another content in a capped collection', 'reported'],
  ['committing', 'another key of an index', 'reported'],
]

it.each(sample)(
  'while %s, %s is %s without other differences, and absent when COMMITTED',
  async (phase, name, outcome) => {
    const corruption = corruptions.find((one) => one.name === name)
    expect(corruption).toBeDefined()
    expect(await runCorruption(pair, phase, corruption as Corruption)).toMatchObject({ outcome, problems: [] })
  },
)
