import { MongoServerError } from 'mongodb'
import { transactional } from './workload-dml.ts'
import { newFields, slotIn, spelledId } from './workload-documents.ts'
import type { Operation, World } from './workload-world.ts'

const attemptsMax = 20

/**
 * Changes several documents in several collections with one commit timestamp; one transaction in four is aborted. After a
 * transient error (such as locks that a finished DDL still holds), it is retried with the same random values, so the error
 * does not change the sequence.
 */
export const transaction: Operation = async (world) => {
  const restore = world.mark()
  for (let attempt = 1; ; attempt++) {
    try {
      return await attemptTransaction(world)
    } catch (error) {
      const transient = error instanceof MongoServerError && error.hasErrorLabel('TransientTransactionError')
      if (!transient || attempt === attemptsMax) throw error
      await new Promise((resolve) => setTimeout(resolve, 20 * attempt))
      restore()
    }
  }
}

async function attemptTransaction(world: World): Promise<void> {
  const session = world.client.startSession()
  const abort = world.random.chance(0.25)
  const count = world.random.chance(0.05) ? 100 : world.random.int(2, 8)
  const writesMany = world.random.chance(0.03)
  try {
    session.startTransaction()
    world.session = session
    for (let i = 0; i < count; i++) {
      const operation = world.random.weighted(transactional.map(([weight, , run]) => [weight, run] as const))
      await operation(world)
    }
    if (writesMany) await fillOneCollection(world)
    if (abort) await session.abortTransaction()
    else await session.commitTransaction()
  } finally {
    world.session = undefined
    // After an error, the driver considers the transaction open.
    if (session.inTransaction()) await session.abortTransaction()
    await session.endSession()
  }
}

/** Upserts a thousand documents, which share one commit timestamp, so that no stream position is between them. */
async function fillOneCollection(world: World): Promise<void> {
  const target = world.dmlTarget()
  const upserts = Array.from({ length: 1000 }, () => {
    const filter = { _id: spelledId(world.random, slotIn(world.random, target)) }
    return { replaceOne: { filter, replacement: newFields(world), upsert: true } }
  })
  await world.collection(target).bulkWrite(upserts, world.inSession)
}
