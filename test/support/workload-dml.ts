import { type AnyBulkWriteOperation, Binary, Timestamp } from 'mongodb'
import { insertRaw, nastyDocument } from './bson-values.ts'
import {
  type Id,
  newDocument,
  newFields,
  operators,
  padding,
  pipeline,
  slotIn,
  spelledId,
} from './workload-documents.ts'
import type { KnownCollection, Operation, World } from './workload-world.ts'

const maxDocumentPadding = 15_900_000

function idIn(world: World, target: KnownCollection): Id {
  return spelledId(world.random, slotIn(world.random, target))
}

const filter = (world: World, target: KnownCollection) => ({ _id: idIn(world, target) })

/** Changes several documents in the order of `_id`, so that after a failure every server has changed the same documents. */
const byId = { hint: { _id: 1 } } as const

const insertOne: Operation = async (world) => {
  const target = world.dmlTarget()
  await world.collection(target).insertOne(newDocument(world, idIn(world, target)), world.inSession)
}

const insertMany: Operation = async (world) => {
  const target = world.dmlTarget()
  const count = world.random.chance(0.05) ? 300 : world.random.int(2, 30)
  const documents = Array.from({ length: count }, () => newDocument(world, idIn(world, target)))
  const ordered = world.session !== undefined || world.random.chance(0.3)
  await world.collection(target).insertMany(documents, { ordered, ...world.inSession })
}

const insertNasty: Operation = async (world) => {
  const target = world.dmlTarget()
  const documents = Array.from({ length: world.random.int(1, 10) }, () =>
    nastyDocument(world.random, idIn(world, target), [['u', `u${world.next()}`]]),
  )
  world.target = `${target.database}.${target.name}`
  await insertRaw(world.db(target.database), target.name, documents)
}

const replaceOne: Operation = async (world) => {
  const target = world.dmlTarget()
  const query = filter(world, target)
  const replacement = newFields(world)
  await world
    .collection(target)
    .replaceOne(query, replacement, { upsert: world.random.chance(0.5), ...world.inSession })
}

const updateOne: Operation = async (world) => {
  const target = world.dmlTarget()
  const query = filter(world, target)
  const upsert = world.random.chance(0.3)
  await world.collection(target).updateOne(query, operators(world), { upsert, ...world.inSession })
}

const updatePipeline: Operation = async (world) => {
  const target = world.dmlTarget()
  await world.collection(target).updateOne(filter(world, target), pipeline(world), world.inSession)
}

const updateMany: Operation = async (world) => {
  const target = world.dmlTarget()
  const from = world.random.int(0, 95)
  const query = { n: { $gte: from, $lt: from + world.random.int(1, 8) } }
  const update = world.random.chance(0.7) ? operators(world) : pipeline(world)
  await world.collection(target).updateMany(query, update, { ...byId, ...world.inSession })
}

const deleteOne: Operation = async (world) => {
  const target = world.dmlTarget()
  await world.collection(target).deleteOne(filter(world, target), world.inSession)
}

const deleteMany: Operation = async (world) => {
  const target = world.dmlTarget()
  const { random } = world
  const query = random.chance(0.97) ? { n: random.int(0, 99) } : { n: { $lt: random.int(10, 50) } }
  await world.collection(target).deleteMany(query, { ...byId, ...world.inSession })
}

const findAndModify: Operation = async (world) => {
  const target = world.dmlTarget()
  const collection = world.collection(target)
  const query = filter(world, target)
  const replacement = newFields(world)
  const upsert = world.random.chance(0.3)
  await world.random.pick([
    () => collection.findOneAndUpdate(query, operators(world), { upsert, ...world.inSession }),
    () => collection.findOneAndReplace(query, replacement, { upsert, ...world.inSession }),
    () => collection.findOneAndDelete(query, world.inSession),
    () =>
      collection.findOneAndUpdate({ n: { $gte: world.random.int(0, 99) } }, operators(world), {
        sort: { _id: 1 },
        ...byId,
        ...world.inSession,
      }),
  ])()
}

const bulkWrite: Operation = async (world) => {
  const target = world.dmlTarget()
  const one = (): AnyBulkWriteOperation => {
    const query = filter(world, target)
    const document = newDocument(world, query._id)
    const replacement = newFields(world)
    const upsert = world.random.chance(0.3)
    return world.random.pick<() => AnyBulkWriteOperation>([
      () => ({ insertOne: { document } }),
      () => ({ updateOne: { filter: query, update: operators(world), upsert } }),
      () => ({ updateOne: { filter: query, update: pipeline(world) } }),
      () => ({ replaceOne: { filter: query, replacement, upsert } }),
      () => ({ deleteOne: { filter: query } }),
    ])()
  }
  const operations = Array.from({ length: world.random.int(3, 60) }, one)
  await world.collection(target).bulkWrite(operations, { ordered: world.random.chance(0.3), ...world.inSession })
}

/**
 * Replaces `_id: 1` by `_id: NumberLong(1)`, which is the same key for an index but a different document in a byte
 * comparison.
 */
const respellId: Operation = async (world) => {
  const target = world.dmlTarget()
  const slot = slotIn(world.random, target)
  const collection = world.collection(target)
  for (let i = world.random.int(1, 3); i > 0; i--) {
    await collection.deleteOne({ _id: spelledId(world.random, slot) }, world.inSession)
    await collection.insertOne(newDocument(world, spelledId(world.random, slot)), world.inSession)
  }
}

const hotDocument: Operation = async (world) => {
  const target = world.dmlTarget()
  const query = filter(world, target)
  const updates = Array.from({ length: 200 }, () => ({
    updateOne: { filter: query, update: operators(world), upsert: true },
  }))
  await world.collection(target).bulkWrite(updates, { ordered: false })
}

const bigDocument: Operation = async (world) => {
  const target = world.dmlTarget()
  const huge = world.huge && world.random.chance(0.1)
  const bytes = huge ? maxDocumentPadding : world.random.int(100_000, 1_000_000)
  const pad = padding(world.random, bytes)
  // Only three ids are used, so the database stays small however long the workload runs.
  const collection = world.collection(target)
  const query = { _id: `big-${world.random.int(0, 2)}` as unknown as Id }
  await collection.replaceOne(query, { n: world.random.int(0, 99), u: `u${world.next()}`, pad }, { upsert: true })
  if (world.random.chance(0.5)) await collection.updateOne(query, { $set: { n: world.random.int(0, 99) } })
  if (huge || world.random.chance(0.3)) await collection.deleteOne(query)
}

/** Swaps the value of `u` of two documents. Applying the updates in another order violates a unique index. */
const swapUnique: Operation = async (world) => {
  const target = world.dmlTarget()
  const collection = world.collection(target)
  const [a, b] = await collection
    .find({ u: { $type: 'string' } }, { ...byId, ...world.inSession })
    .sort({ _id: 1 })
    .skip(world.random.int(0, 10))
    .limit(2)
    .toArray()
  if (!a || !b) return
  await collection.updateOne({ _id: a._id }, { $set: { u: `swap${world.next()}` } }, world.inSession)
  await collection.updateOne({ _id: b._id }, { $set: { u: a['u'] } }, world.inSession)
  await collection.updateOne({ _id: a._id }, { $set: { u: b['u'] } }, world.inSession)
}

/**
 * Sets empty timestamps. The server keeps them with `$set`, but replaces top-level ones with its own time on insert
 * unless the writer bypasses this.
 */
const emptyTimestamp: Operation = async (world) => {
  const target = world.dmlTarget()
  const zero = new Timestamp({ t: 0, i: 0 })
  const tag = new Binary(world.random.bytes(4), 128)
  await world
    .collection(target)
    .updateOne(filter(world, target), { $set: { zero, 'o.zero': zero, tag } }, { upsert: false, ...world.inSession })
}

/** The operations that a transaction may contain. */
export const transactional: readonly (readonly [number, string, Operation])[] = [
  [2, 'insertOne', insertOne],
  [1, 'insertMany', insertMany],
  [6, 'replaceOne', replaceOne],
  [8, 'updateOne', updateOne],
  [3, 'updatePipeline', updatePipeline],
  [2, 'updateMany', updateMany],
  [4, 'deleteOne', deleteOne],
  [2, 'respellId', respellId],
  [2, 'swapUnique', swapUnique],
  [2, 'findAndModify', findAndModify],
]

export const dml: readonly (readonly [number, string, Operation])[] = [
  [10, 'insertOne', insertOne],
  [8, 'insertMany', insertMany],
  [4, 'insertNasty', insertNasty],
  [10, 'replaceOne', replaceOne],
  [16, 'updateOne', updateOne],
  [6, 'updatePipeline', updatePipeline],
  [4, 'updateMany', updateMany],
  [10, 'deleteOne', deleteOne],
  [1.5, 'deleteMany', deleteMany],
  [6, 'findAndModify', findAndModify],
  [4, 'bulkWrite', bulkWrite],
  [4, 'respellId', respellId],
  [0.6, 'hotDocument', hotDocument],
  [0.8, 'bigDocument', bigDocument],
  [3, 'swapUnique', swapUnique],
  [1, 'emptyTimestamp', emptyTimestamp],
]
