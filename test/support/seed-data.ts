import { type Document, Long, MongoClient } from 'mongodb'
import { idOfEveryType, insertRaw, nastyDocument } from './bson-values.ts'
import { Random } from './random.ts'
import { newDocument, padding, spelledId } from './workload-documents.ts'
import { archiveDatabase, World, workloadCollections, workloadDatabases } from './workload-world.ts'

/**
 * Loads the data of the source before a sync begins, which takes about two seconds at scale 1: the `archive` with one collection
 * of every kind, and a few documents in the collections that the workload uses. The same seed and scale give the same bytes.
 */
export async function seedData(uri: string, seed: number | string, scale = 1): Promise<void> {
  const client = new MongoClient(uri, { writeConcern: { w: 1 } })
  try {
    const random = new Random(`seed data ${seed}`)
    const options = {
      huge: false,
      ddl: true,
      databases: workloadDatabases,
      names: workloadCollections,
      sequence: { at: 1_000_000 },
    }
    const world = new World(client, random, options)
    await seedArchive(world, scale)
    await seedLive(world, Math.ceil(100 * scale))
  } finally {
    await client.close()
  }
}

const inBatches = async (
  count: number,
  size: number,
  load: (from: number, to: number) => Promise<unknown>,
): Promise<void> => {
  for (let from = 0; from < count; from += size) await load(from, Math.min(count, from + size))
}

const range = <T>(from: number, to: number, make: (i: number) => T): T[] =>
  Array.from({ length: to - from }, (_, i) => make(from + i))

async function seedArchive(world: World, scale: number): Promise<void> {
  const { random } = world
  const db = world.db(archiveDatabase)
  const fill = (name: string, count: number, make: (i: number) => Document, batch = 5000) =>
    inBatches(count, batch, (from, to) =>
      world.collection({ database: archiveDatabase, name }).insertMany(range(from, to, make)),
    )

  // Fixed values are cheaper than random ones, and this collection has to be large.
  await fill('small', Math.ceil(20_000 * scale), (i) => ({
    _id: i % 3 === 0 ? Long.fromInt(i) : i,
    n: i % 100,
    u: `small${i}`,
    s: `text ${i % 977}`,
    f: [i],
  }))
  await fill(
    'ten kilobytes',
    Math.ceil(300 * scale),
    (i) => ({ _id: spelledId(random, i), n: i % 100, u: `ten${i}`, pad: padding(random, 10_000) }),
    300,
  )
  await db.collection('ten kilobytes').createIndex({ u: 1 }, { unique: true })

  await inBatches(idOfEveryType.length, 1, (i) => insertEach(world, 'every type', i, Math.ceil(20 * scale)))

  await db.createCollection('capped', { capped: true, size: 200_000, max: 500 })
  await fill('capped', Math.ceil(800 * scale), (i) => ({ _id: (i * 7919) % 100_003, n: i % 100, u: `capped${i}` }))
  await db.createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } })
  await fill('clustered', Math.ceil(1000 * scale), (i) => ({
    _id: spelledId(random, i),
    n: i % 100,
    u: `clustered${i}`,
  }))
  await db.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await fill('collated', Math.ceil(500 * scale), (i) => ({
    _id: i % 2 ? `Name ${i}` : `name ${i}`,
    n: i % 100,
    u: `collated${i}`,
  }))
  await db.createCollection('validated', {
    validator: { n: { $gte: 50 } },
    validationAction: 'error',
    validationLevel: 'moderate',
    changeStreamPreAndPostImages: { enabled: true },
  })
  const documents = range(0, Math.ceil(200 * scale), (i) => ({
    ...newDocument(world, spelledId(random, i)),
    n: i % 100,
  }))
  await world
    .collection({ database: archiveDatabase, name: 'validated' })
    .insertMany(documents, { bypassDocumentValidation: true })

  await db.createCollection('view', { viewOn: 'small', pipeline: [{ $match: { n: { $lt: 10 } } }] })
  await db.createCollection('view of view', {
    viewOn: 'view',
    pipeline: [{ $lookup: { from: 'clustered', localField: 'n', foreignField: 'n', as: 'c' } }],
  })
  await db.createCollection('collated view', {
    viewOn: 'collated',
    pipeline: [],
    collation: { locale: 'en', strength: 2 },
  })
  await db.createCollection('empty')
  await seedIndexes(world)
}

/** Inserts random documents with one kind of `_id`. The server may reject some of them as duplicates of earlier ones. */
async function insertEach(world: World, name: string, kind: number, count: number): Promise<void> {
  const make = idOfEveryType[kind]
  if (!make) return
  const documents = range(0, count, () =>
    nastyDocument(world.random, make(world.random), [['u', `every${world.next()}`]]),
  )
  try {
    await insertRaw(world.db(archiveDatabase), name, documents)
  } catch (error) {
    if ((error as { code?: number }).code !== 11000) throw error
  }
}

async function seedIndexes(world: World): Promise<void> {
  const db = world.db(archiveDatabase)
  await db.collection('small').createIndexes([
    { key: { u: 1 }, unique: true, name: 'u_1' },
    { key: { n: 1, s: -1 }, name: 'n_1_s_-1', hidden: true },
    { key: { expires: 1 }, name: 'expires_1', expireAfterSeconds: 123_456 },
    { key: { s: 'text' }, name: 's_text' },
    { key: { n: 1 }, name: 'partial', partialFilterExpression: { n: { $gt: 5 } } },
  ])
  await db.collection('every type').createIndex({ '$**': 1 }, { name: 'wild' })
  await db.collection('clustered').createIndex({ n: 'hashed' })
  await db.collection('collated').createIndex({ u: 1 }, { unique: true, collation: { locale: 'simple' } })
  await db.collection('validated').createIndex({ geo: '2dsphere' }, { sparse: true })
}

async function seedLive(world: World, count: number): Promise<void> {
  for (const database of workloadDatabases) {
    for (const name of workloadCollections.slice(0, 3)) {
      const documents = range(0, count, (i) => newDocument(world, spelledId(world.random, i)))
      await world.collection({ database, name }).insertMany(documents)
    }
    const db = world.db(database)
    await db.collection(workloadCollections[0]).createIndex({ u: 1 }, { unique: true })
    await db.createCollection('view_one', {
      viewOn: workloadCollections[0],
      pipeline: [{ $match: { n: { $gt: 50 } } }],
    })
  }
}
