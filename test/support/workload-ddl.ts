import type { Document } from 'mongodb'
import { createIndexes, dropIndexes, modifyIndex } from './workload-indexes.ts'
import {
  type KnownCollection,
  type NamedCollection,
  type Operation,
  type World,
  workloadViews,
} from './workload-world.ts'

const caseless = { locale: 'en', strength: 2 }

/** Returns a random validator. Half of the documents violate the first one. */
function validator(world: World): Document {
  return world.random.pick<Document>([
    { n: { $mod: [2, 0] } },
    { $expr: { $lt: [{ $strLenBytes: { $toString: { $ifNull: ['$u', ''] } } }, 9] } },
    { $jsonSchema: { required: ['u'], properties: { n: { bsonType: ['int', 'long', 'double'], minimum: 0 } } } },
    {},
  ])
}

function collectionOptions(world: World): Document {
  const { random } = world
  return random.weighted<() => Document>([
    [5, () => ({})],
    [
      3,
      () => ({
        capped: true,
        size: random.int(1, 200) * 1000,
        ...(random.chance(0.5) ? { max: random.int(5, 300) } : {}),
      }),
    ],
    [
      2,
      () => ({ clusteredIndex: { key: { _id: 1 }, unique: true, ...(random.chance(0.5) ? { name: 'by id' } : {}) } }),
    ],
    [2, () => ({ collation: caseless })],
    [1, () => ({ collation: { locale: 'de', strength: 1, numericOrdering: true } })],
    [
      1,
      () => ({
        validator: validator(world),
        validationAction: random.pick(['error', 'warn']),
        validationLevel: random.pick(['strict', 'moderate', 'off']),
      }),
    ],
    [1, () => ({ changeStreamPreAndPostImages: { enabled: true } })],
    [1, () => ({ storageEngine: { wiredTiger: { configString: 'block_compressor=zlib' } } })],
    [1, () => ({ indexOptionDefaults: { storageEngine: { wiredTiger: {} } } })],
  ])()
}

const create: Operation = async (world) => {
  const target = world.anyName()
  world.target = `${target.database}.${target.name}`
  await world.db(target.database).command({ create: target.name, ...collectionOptions(world) })
}

function viewDefinition(world: World, database: string): { viewOn: string; pipeline: Document[] } {
  const { random } = world
  const viewOn = random.chance(0.25) ? random.pick(workloadViews) : random.pick(world.names)
  const from = world.anyName(database).name
  const pipeline = random.pick<Document[]>([
    [],
    [{ $match: { n: { $gte: random.int(0, 50) } } }],
    [{ $project: { _id: 1, u: 1, n: { $add: ['$n', random.int(0, 9)] } } }, { $sort: { n: -1 } }],
    [{ $lookup: { from, localField: 'n', foreignField: 'n', as: 'others' } }, { $unwind: '$others' }],
    [{ $unionWith: { coll: from, pipeline: [{ $limit: random.int(1, 5) }] } }],
  ])
  return { viewOn, pipeline }
}

const createView: Operation = async (world) => {
  const database = world.random.pick(world.databases)
  const name = world.random.chance(0.9) ? world.random.pick(workloadViews) : world.random.pick(world.names)
  world.target = `${database}.${name}`
  const collation = world.random.chance(0.3) ? { collation: caseless } : {}
  await world.db(database).command({ create: name, ...viewDefinition(world, database), ...collation })
}

const changeView: Operation = async (world) => {
  const target = world.existing({ archive: false, view: true })
  const collection = world.collection(target)
  if (world.random.chance(0.3)) await collection.drop()
  else await world.db(target.database).command({ collMod: target.name, ...viewDefinition(world, target.database) })
}

/**
 * `drop` of a missing collection succeeds since 7.0 and fails with NamespaceNotFound before; the driver hides the
 * difference.
 */
const drop: Operation = async (world) => {
  await world.collection(world.existing({ archive: false })).drop()
}

const dropDatabase: Operation = async (world) => {
  const database = world.random.pick(world.databases)
  world.target = database
  await world.db(database).dropDatabase()
}

async function rename(world: World, from: NamedCollection, to: NamedCollection, dropTarget = false): Promise<void> {
  world.target = `${from.database}.${from.name} to ${to.database}.${to.name}`
  await world.db('admin').command({
    renameCollection: `${from.database}.${from.name}`,
    to: `${to.database}.${to.name}`,
    dropTarget,
  })
}

const renameWithin: Operation = async (world) => {
  const from = world.existing({ archive: true })
  await rename(world, from, world.anyName(from.database), world.random.chance(0.4))
}

const renameChain: Operation = async (world) => {
  const from = world.existing({ archive: true })
  const { database } = from
  const names = Array.from({ length: world.random.int(2, 4) }, (_, i) => ({ database, name: `step ${i}` }))
  const last = world.random.chance(0.5) ? from : world.anyName(database)
  let current: NamedCollection = from
  for (const name of names) {
    await rename(world, current, name, true)
    if (world.random.chance(0.5))
      await world.collection(name).updateMany({}, { $set: { moved: name.name } }, { hint: { _id: 1 } })
    current = name
  }
  await rename(world, current, last, true)
}

/** Swaps the names of a and b: the names are the same as before, but each now has the other's UUID. */
const renameSwap: Operation = async (world) => {
  const a = world.existing({ archive: true })
  const others = world.known.filter((one) => one.database === a.database && !one.view && one.name !== a.name)
  if (others.length === 0) return
  const b: KnownCollection = world.random.pick(others)
  const between = { database: a.database, name: 'between' }
  await rename(world, a, between, true)
  await rename(world, b, a)
  await rename(world, between, b)
}

/** Renames across databases, which the server does by copying to a temporary collection. The collection gets a new UUID. */
const renameAcross: Operation = async (world) => {
  const from = world.existing({ archive: false })
  const databases = world.databases.filter((database) => database !== from.database)
  if (databases.length === 0) return
  await rename(world, from, world.anyName(world.random.pick(databases)), world.random.chance(0.5))
}

const modifyCollection: Operation = async (world) => {
  const { random } = world
  const target = world.existing({ archive: true })
  const cappedTargets = world.known.filter((one) => one.capped)
  const modify = (change: Document, { database, name } = target) => {
    world.target = `${database}.${name}`
    return world.db(database).command({ collMod: name, ...change })
  }
  await random.pick([
    () => modify({ validator: validator(world) }),
    () => modify({ validator: validator(world), validationLevel: random.pick(['strict', 'moderate', 'off']) }),
    () => modify({ validationAction: random.pick(['error', 'warn']) }),
    () => modify({ validator: {}, validationLevel: 'strict', validationAction: 'error' }),
    () => modify({ changeStreamPreAndPostImages: { enabled: random.chance(0.5) } }),
    () =>
      modify({ cappedSize: random.int(1, 200) * 1000 }, cappedTargets.length > 0 ? random.pick(cappedTargets) : target),
    () => modify({ cappedMax: random.int(0, 300) }, cappedTargets.length > 0 ? random.pick(cappedTargets) : target),
  ])()
}

/**
 * Runs `$out` or `$merge`. `$out` writes to a temporary collection that the server then renames. Sorting by `_id` makes
 * the outcome deterministic.
 */
const aggregateInto: Operation = async (world) => {
  const { random } = world
  const from = world.existing({ archive: false })
  const to = world.anyName(random.chance(0.7) ? from.database : random.pick(world.databases))
  const into = { db: to.database, coll: to.name }
  const stages = [
    { $match: { n: { $lt: random.int(20, 100) } } },
    { $sort: { _id: 1 } },
    { $set: { via: random.word(3) } },
    // `$out` and `$merge` replace an empty timestamp with the server's time, which differs between servers.
    { $unset: 'zero' },
  ]
  const replaces = random.chance(0.5)
  const last = replaces
    ? { $out: into }
    : {
        $merge: {
          into,
          whenMatched: random.pick(['replace', 'merge', 'keepExisting', 'fail']),
          whenNotMatched: 'insert',
        },
      }
  await world
    .collection(from)
    .aggregate([...stages, last])
    .toArray()
}

export const ddl: readonly (readonly [number, string, Operation])[] = [
  [7, 'create', create],
  [2, 'createView', createView],
  [1.5, 'changeView', changeView],
  [3, 'drop', drop],
  [0.4, 'dropDatabase', dropDatabase],
  [4, 'renameWithin', renameWithin],
  [1, 'renameChain', renameChain],
  [1.5, 'renameSwap', renameSwap],
  [2, 'renameAcross', renameAcross],
  [8, 'createIndexes', createIndexes],
  [2.5, 'dropIndexes', dropIndexes],
  [3, 'modifyIndex', modifyIndex],
  [3, 'modifyCollection', modifyCollection],
  [2, 'aggregateInto', aggregateInto],
]
