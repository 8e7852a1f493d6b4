import { setTimeout as sleep } from 'node:timers/promises'
import { type ClientSession, type Collection, type Db, type Document, type MongoClient, MongoError } from 'mongodb'
import { Random } from './random.ts'
import { idOf, newFields } from './workload-values.ts'

type Row = Document & { _id: never }
type Step = (world: World) => Promise<unknown>

interface World {
  client: MongoClient
  random: Random
  database: () => Db
  collection: () => Collection<Row>
  /** The session of the steps in a transaction. */
  session?: ClientSession
}

const ids = 5_000
/** Share of the steps that change a definition. */
const definitionShare = 0.005
const names = ['alpha', 'beta', 'gamma.one', 'Delta Ü'] as const
const idOfStep = ({ random }: World): never => idOf(random, ids) as never
const inSession = ({ session }: World) => (session ? { session } : {})

const insertMany: Step = (world) => {
  const documents = Array.from({ length: 1 + world.random.below(20) }, () => ({
    ...newFields(world.random),
    _id: idOfStep(world),
  }))
  return world.collection().insertMany(documents as never, { ordered: false, ...inSession(world) })
}
const replace: Step = (world) =>
  world
    .collection()
    .replaceOne({ _id: idOfStep(world) }, newFields(world.random) as never, { upsert: true, ...inSession(world) })
const update: Step = (world) => {
  const { random } = world
  const change = random.pick<Document>([
    { $set: newFields(random) },
    { $inc: { n: 1 } },
    { $unset: { odd: 1 } },
    { $push: { list: { $each: [random.below(9)], $slice: -5 } } },
    { $rename: { text: 'words' } },
  ])
  return world.collection().updateOne({ _id: idOfStep(world) }, change, { upsert: true, ...inSession(world) })
}
const updateByPipeline: Step = (world) =>
  world
    .collection()
    .updateOne({ _id: idOfStep(world) }, [{ $set: { n: { $add: [{ $ifNull: ['$n', 0] }, 1] } } }], inSession(world))
const updateMany: Step = (world) => {
  const from = world.random.below(1_000)
  return world.collection().updateMany({ n: { $gte: from, $lt: from + 5 } }, { $inc: { m: 1 } }, inSession(world))
}
const remove: Step = (world) => world.collection().deleteOne({ _id: idOfStep(world) }, inSession(world))
const removeMany: Step = (world) => world.collection().deleteMany({ n: world.random.below(1_000) }, inSession(world))

const documentSteps: readonly Step[] = [
  ...[insertMany, insertMany, replace, update, update],
  ...[updateByPipeline, updateMany, remove, removeMany],
]

const transaction: Step = async (world) => {
  const isAborted = world.random.fraction() < 0.2
  const session = world.client.startSession()
  try {
    session.startTransaction()
    for (let steps = 1 + world.random.below(4); steps > 0; steps--) {
      await world.random.pick([replace, update, remove])({ ...world, session })
    }
    await (isAborted ? session.abortTransaction() : session.commitTransaction())
  } catch (error) {
    if (session.inTransaction()) await session.abortTransaction()
    throw error
  } finally {
    await session.endSession()
  }
}

const definitionSteps: readonly Step[] = [
  ({ database, random }) => database().createCollection(random.pick(names)),
  ({ database, random }) =>
    database().createCollection('capped', { capped: true, size: 65_536 + random.below(9) * 4_096 }),
  ({ database, random }) =>
    database().createCollection('view', {
      viewOn: random.pick(names),
      pipeline: [{ $match: { n: random.below(99) } }],
    }),
  ({ collection }) => collection().createIndex({ n: 1, text: -1 }),
  ({ collection }) => collection().createIndex({ expires: 1 }, { expireAfterSeconds: 3_600 }),
  ({ collection, random }) => collection().createIndex({ m: 1 }, { sparse: true, hidden: random.fraction() < 0.5 }),
  ({ collection }) => collection().createIndex({ u: 1 }, { unique: true, sparse: true }),
  ({ collection, random }) => collection().dropIndex(random.pick(['n_1_text_-1', 'expires_1', 'm_1', 'u_1'])),
  ({ database, random }) =>
    database().command({
      collMod: random.pick(names),
      index: { name: 'expires_1', expireAfterSeconds: random.below(9_999) + 60 },
    }),
  ({ database, random }) =>
    database().command({ collMod: random.pick(names), validator: { n: { $lt: 1_000_000 + random.below(9) } } }),
  ({ collection, random }) => collection().rename(random.pick(names), { dropTarget: random.fraction() < 0.5 }),
  ({ collection }) => collection().drop(),
  ({ database }) => database().dropCollection('view'),
]

export interface WorkloadOptions {
  client: MongoClient
  databases: readonly string[]
  seed: number
  /** Milliseconds between two steps. */
  pauseMS: number
}

/**
 * Changes documents at random until it is stopped, by inserts, replacements, updates, deletes and transactions, and now
 * and then changes a definition. An error of the server or the driver ends the step but not the workload.
 * @throws any other error
 */
export class Workload {
  readonly steps = { done: 0, refused: 0 }
  readonly #options: WorkloadOptions

  constructor(options: WorkloadOptions) {
    this.#options = options
  }

  async run(signal: AbortSignal): Promise<void> {
    const { client, databases, seed, pauseMS } = this.#options
    const random = new Random(seed)
    const database = (): Db => client.db(random.pick(databases))
    const world: World = { client, random, database, collection: () => database().collection(random.pick(names)) }
    while (!signal.aborted) {
      const kind = random.fraction()
      const step =
        kind < definitionShare ? random.pick(definitionSteps) : kind < 0.1 ? transaction : random.pick(documentSteps)
      try {
        await step(world)
        this.steps.done++
      } catch (error) {
        if (!(error instanceof MongoError)) throw error
        this.steps.refused++
      }
      await sleep(pauseMS)
    }
  }
}
