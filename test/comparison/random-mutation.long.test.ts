import type { Collection, Db } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { shownId } from '../../src/comparison/document-id.ts'
import {
  idOfEveryType,
  insertRaw,
  nastyDocument,
  nastyScalars,
  type RawField,
  RawValue,
  rawDocument,
} from '../support/bson-values.ts'
import { elements } from '../support/compare-raw.ts'
import { Random } from '../support/random.ts'
import { TwoSides } from './two-sides.ts'

const database = 'random'
const documentsPerSeed = 250
const namespaces = [{ database, collection: null }]

let sides: TwoSides

beforeAll(async () => {
  sides = await TwoSides.start()
})

afterAll(() => sides?.stop())

async function readRaw(collection: Collection): Promise<Buffer[]> {
  return (await collection.find({}, { raw: true }).sort({ _id: 1 }).toArray()) as unknown as Buffer[]
}

/** The server refuses an `_id` with these codes: for a duplicate key, and for a symbol, which an index with a collation cannot contain. */
const refusedIds = [11000, 201]

/** Inserts each document with its own command. Skips documents whose `_id` the server refuses. */
async function insertDrawn(db: Db, name: string, documents: Buffer[]): Promise<void> {
  for (const document of documents) {
    await insertRaw(db, name, [document]).catch((error: { code?: number }) => {
      if (!refusedIds.includes(error.code ?? 0)) throw error
    })
  }
}

interface Mutation {
  /** The documents of cluster1 after the change. */
  documents: Buffer[]
  how: 'missing' | 'extra' | 'different'
  of: Buffer
}

const fieldsOf = (document: Buffer): RawField[] =>
  [...elements(document)].map(({ name, value }) => [name, new RawValue(value[0] as number, value.subarray(1))])

function changed(random: Random, document: Buffer): Buffer {
  const [id, ...fields] = fieldsOf(document) as [RawField, ...RawField[]]
  const at = random.int(0, fields.length - 1)
  const other = random.pick<() => RawField[]>([
    () => fields.toSpliced(at, 1),
    () => fields.toSpliced(at, 0, [`new${random.word(3)}`, 1]),
    () => fields.with(at, [fields[at]?.[0] ?? '', random.word(20)]),
    () => [...fields, fields[at] as RawField],
    () => [...fields.slice(1), fields[0] as RawField],
  ])
  const result = rawDocument([id, ...other()])
  // Rotating a list of one field, or of equal fields, changes nothing.
  return result.equals(document) ? changed(random, document) : result
}

function mutate(random: Random, documents: Buffer[]): Mutation {
  const at = random.int(0, documents.length - 1)
  const of = documents[at] as Buffer
  switch (random.pick(['missing', 'extra', 'different', 'different'] as const)) {
    case 'missing':
      return { documents: documents.toSpliced(at, 1), how: 'missing', of }
    case 'extra': {
      const extra = nastyDocument(random, random.pick([`new ${random.word(9)}`, random.uint32() + 0.25]))
      return { documents: [...documents, extra], how: 'extra', of: extra }
    }
    default:
      return { documents: documents.with(at, changed(random, of)), how: 'different', of }
  }
}

describe('one random change among random documents', () => {
  test.each(Array.from({ length: 25 }, (_, seed) => seed))(
    'seed %i: the comparison finds it, and no other difference',
    async (seed) => {
      const random = new Random(`audit ${seed}`)
      const [left, right] = await sides.fill(database, async () => {})
      const options = seed % 3 === 0 ? { collation: { locale: 'en', strength: 1 } } : {}
      await Promise.all([left.createCollection('c', options), right.createCollection('c', options)])
      const drawn = Array.from({ length: documentsPerSeed }, () =>
        nastyDocument(random, random.pick(idOfEveryType)(random)),
      )
      await insertDrawn(left, 'c', drawn)
      const documents = await readRaw(left.collection('c'))
      const mutation = mutate(random, documents)
      await insertDrawn(right, 'c', random.shuffle(mutation.documents))
      const report = await sides.audit({ namespaces })
      expect(report.differences).toEqual([
        expect.objectContaining({ what: 'document', how: mutation.how, id: shownId(mutation.of) }),
      ])
      expect(report.documents).toEqual({ cluster0: documents.length, cluster1: mutation.documents.length })
      await right.collection('c').deleteMany({})
      await insertDrawn(right, 'c', random.shuffle(documents))
      expect((await sides.audit({ namespaces })).differences).toEqual([])
    },
  )
})

describe('every BSON type', () => {
  test('is reported as different if the value has the next type on the other side', async () => {
    const [left, right] = await sides.fill(database, async () => {})
    const values = nastyScalars.map((make, index) => make(new Random(index)))
    const rotated = [...values.slice(1), values[0]]
    const documents = (all: unknown[]) =>
      all.map((value, index) =>
        rawDocument([
          ['_id', index],
          ['v', value],
        ]),
      )
    const [ours, theirs] = [documents(values), documents(rotated)]
    await Promise.all([insertRaw(left, 'values', ours), insertRaw(right, 'values', theirs)])
    const { differences } = await sides.audit({ namespaces })
    expect(differences).toEqual(
      ours
        .filter((document, index) => !document.equals(theirs[index] as Buffer))
        .map((document) => expect.objectContaining({ how: 'different', id: shownId(document), field: 'v' })),
    )
    expect(differences.length).toBeGreaterThan(35)
  })

  test('is reported as missing and as extra if it is the type of an _id', async () => {
    const [left, right] = await sides.fill(database, async () => {})
    await insertDrawn(
      left,
      'ids',
      idOfEveryType.map((make, index) => rawDocument([['_id', make(new Random(index))]])),
    )
    const documents = await readRaw(left.collection('ids'))
    expect(documents.length).toBeGreaterThan(28)
    for (const [index, document] of documents.entries()) {
      await right.collection('ids').deleteMany({})
      await insertRaw(right, 'ids', documents.toSpliced(index, 1))
      expect((await sides.audit({ namespaces })).differences).toEqual([
        expect.objectContaining({ what: 'document', how: 'missing', id: shownId(document) }),
      ])
    }
    await insertRaw(right, 'ids', documents.slice(-1))
    await left.collection('ids').deleteMany({ _id: { $exists: true } })
    expect(await sides.audit({ namespaces })).toMatchObject({ totalDifferences: documents.length })
  })
})
