import { Binary, BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { documentParts } from '../../src/documents/write-in-parts.ts'
import { idElementOf } from '../../src/domain/id-element.ts'
import { identitiesOf } from '../apply/two-clusters.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'
import { array, insertRaw, nested, type RawField, rawDocument, updateRaw } from '../support/bson-values.ts'

/**
 * Documents of nearly 16 MB whose `_id` exceeds 16 KB. The server refuses to insert or to replace them as a whole, but
 * updates can enlarge a document to this size.
 */

useTwoClusters()

const documentBytesMax = 16 * 1024 * 1024
const pad = (megabytes: number, value = 1) => new Binary(Buffer.alloc(megabytes * 1024 * 1024, value))
const set = (...fields: RawField[]) => rawDocument([['$set', nested(fields)]])
const push = (...items: unknown[]) => rawDocument([['$push', nested([['list', nested([['$each', array(items)]])]])]])

/** Lists of updates that enlarge a document by 12 to 15 MB. */
const growth: Record<string, Buffer[]> = {
  'many fields': Array.from({ length: 15 }, (_, at) => set([`${15 - at}`, pad(1, at)])),
  'one large array': Array.from({ length: 13 }, (_, at) => push(pad(1, at), nested([['a.b', at]]))),
  'an array in a document in an array': [
    push('first', nested([['inner', array([])]])),
    ...Array.from({ length: 4 }, (_, at) =>
      rawDocument([['$push', nested([['list.1.inner', nested([['$each', array([pad(3, at), at])]])]])]]),
    ),
    set(['last', 1]),
  ],
}

async function grow(id: unknown, updates: readonly Buffer[]): Promise<Buffer> {
  const document = rawDocument([
    ['_id', id],
    ['first', 1],
    ['a.b', 2],
    ['$top', 3],
  ])
  await insertRaw(source(), 'c', [document])
  for (const update of updates) await updateRaw(source(), 'c', [[id, update]])
  const { z: _none, ...found } = (await source().collection('c').findOne()) as Document
  // This field fills the rest of the 16 MB.
  const left = documentBytesMax - BSON.calculateObjectSize(found) - 100
  await updateRaw(source(), 'c', [[id, set(['z', new Binary(Buffer.alloc(left))])]])
  return Buffer.from((await source().collection('c').findOne({}, { raw: true })) as unknown as Uint8Array)
}

describe('a document of nearly 16 MB whose _id exceeds 16 KB', () => {
  it.each(Object.keys(growth))('becomes equal to the source when it consists of %s', async (what) => {
    await createOnBoth('c')
    const id = what === 'many fields' ? 'x'.repeat(17_000) : nested([['x', 'y'.repeat(1_500_000)]])
    const whole = await grow(id, growth[what] ?? [])
    expect(whole.length).toBeGreaterThan(documentBytesMax - 200)
    // The oplog entry contains the `_id` twice, so no single statement can write the document.
    await expect(insertRaw(destination(), 'c', [whole])).rejects.toMatchObject({ code: 10334 })
    const entry = await clusters.entryOf(database, 'c')
    const identities = identitiesOf([idElementOf(whole)])
    await clusters.reconcile(entry, identities)
    await clusters.expectEqual(database)
    // The destination now has an older version of the document.
    await updateRaw(source(), 'c', [[id, set(['first', 7])]])
    await clusters.reconcile(entry, identities)
    await clusters.expectEqual(database)
    await source().collection('c').deleteMany({})
    await clusters.reconcile(entry, identities)
    await clusters.expectEqual(database)
    expect(clusters.context.retried).toEqual([])
  })

  it('becomes equal to the source when a killed process has written only a part of it', async () => {
    await createOnBoth('c')
    const id = 'x'.repeat(17_000)
    const whole = await grow(id, growth['many fields'] ?? [])
    await insertRaw(destination(), 'c', [documentParts(idElementOf(whole), whole)?.insert as Buffer])
    await clusters.reconcile(await clusters.entryOf(database, 'c'), identitiesOf([idElementOf(whole)]))
    await clusters.expectEqual(database)
  })

  it('is recorded as a tombstone while its collection is copied', async () => {
    await createOnBoth('c')
    const whole = await grow('x'.repeat(1_500_000), growth['one large array'] ?? [])
    const entry = { ...(await clusters.entryOf(database, 'c')), state: 'copying' as const }
    await source().collection('c').deleteMany({})
    await clusters.reconcile(entry, identitiesOf([idElementOf(whole)]))
    const recorded = await clusters.metadata.tombstones.read(entry.uuid, null, 10)
    expect(recorded.map(({ idElement }) => idElement.equals(idElementOf(whole)))).toEqual([true])
  })
})
