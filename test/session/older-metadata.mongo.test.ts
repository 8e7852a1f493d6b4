import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { FatalError } from '../../src/domain/errors.ts'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { OlderMetadata } from '../../src/mongo/older-metadata.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { storedRecord } from './stored-record.ts'

/** Instances of an earlier release and of this one that are started together agree on one metadata database. */

let two: TwoClusters
emptiedClusters((started) => {
  two = started
})
const older = () => two.destinationClient.db(olderMetadataDatabase)
const newer = () => two.destinationClient.db(metadataDatabase)
const ids = async (database: ReturnType<typeof older>) => await database.collection('sync').find().toArray()
const reservation = () => new OlderMetadata(two.destination, two.context)

/** An instance that is being started, in steps. */
interface Starting {
  /** The metadata database of the sync that the instance has joined; null if its start was refused or has not ended. */
  joined: string | null
  /** Performs the next step. Returns false after the last one. */
  step(): Promise<boolean>
}

function starting(
  steps: (join: (database: string | null) => void) => (() => Promise<'ended' | undefined>)[],
): Starting {
  const left = steps((database) => {
    self.joined = database
  })
  const self: Starting = {
    joined: null,
    step: async () => {
      const next = left.shift()
      if (!next) return false
      if ((await next()) === 'ended') left.length = 0
      return true
    },
  }
  return self
}

/**
 * Starts an instance of a release that knows only the older name, with the steps of that release. It looks for a
 * record, and stores its own record only if there is none. It refuses versions of the record that it does not know.
 */
function earlierRelease(): Starting {
  const versions = { writes: 1, reads: [1, 2, 3] }
  const stored = new StoredDocuments(two.destination, two.context, versions, olderMetadataDatabase)
  const find = async () => {
    try {
      return await stored.findOne('sync', { _id: 'sync' })
    } catch (error) {
      if (error instanceof FatalError && error.failure === 'MetadataVersion') return 'refused'
      throw error
    }
  }
  return starting((join) => [
    async () => {
      const found = await find()
      if (found && found !== 'refused') join(olderMetadataDatabase)
      return found ? 'ended' : undefined
    },
    async () => {
      await stored.findAndUpdate(
        'sync',
        { _id: 'sync', schemaVersion: 1 },
        { $setOnInsert: { of: 'an earlier release' }, $set: {} },
        true,
      )
      if ((await find()) !== 'refused') join(olderMetadataDatabase)
      return 'ended'
    },
  ])
}

/** Starts an instance of this release, with the steps of `findStoredSync` and `beginSync`. */
function thisRelease(): Starting {
  const holds = async (database: string) =>
    (await new Metadata(two.destination, two.context, undefined, database).loadSync().catch(() => 'unreadable')) !==
    null
  const joinOlder = (join: (database: string | null) => void) => async (): Promise<'ended'> => {
    // `findStoredSync` refuses two syncs.
    if (!(await holds(metadataDatabase))) join(olderMetadataDatabase)
    return 'ended'
  }
  return starting((join) => [
    async () => {
      const [isNewer, isOlder] = [await holds(metadataDatabase), await holds(olderMetadataDatabase)]
      if (isNewer !== isOlder) join(isNewer ? metadataDatabase : olderMetadataDatabase)
      return isNewer || isOlder ? 'ended' : undefined
    },
    async () => ((await reservation().reserve()) ? undefined : await joinOlder(join)()),
    async () => {
      await new Metadata(two.destination, two.context).createSync(storedRecord)
      return undefined
    },
    async () => {
      if (await reservation().reserve()) join(metadataDatabase)
      return 'ended'
    },
  ])
}

/** Simulates an instance in the sync of this release. It removes the reservation once the reservation has expired. */
const remover = (): Starting =>
  starting(() => [
    async () => {
      if ((await ids(newer())).length > 0) await reservation().removeExpired()
      return undefined
    },
  ])

describe('instances of both releases that are started at the same time', () => {
  const order = fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 4, maxLength: 20 })

  it('take part in one sync, in whatever order their steps are executed', async () => {
    const joinedIn = { [metadataDatabase]: 0, [olderMetadataDatabase]: 0 }
    await fc.assert(
      fc.asyncProperty(order, async (turns) => {
        for (const database of [older(), newer()]) await database.dropDatabase()
        const instances = [earlierRelease(), earlierRelease(), thisRelease(), thisRelease(), remover()]
        for (const turn of turns) await instances[turn]?.step()
        for (const one of instances) while (await one.step());
        const joined = new Set(instances.slice(0, 4).map((one) => one.joined))
        joined.delete(null)
        expect(joined.size).toBe(1)
        const [database] = joined as Set<keyof typeof joinedIn>
        joinedIn[database as keyof typeof joinedIn] += 1
        const records = [...(await ids(older())), ...(await ids(newer()))].filter((one) => !('supersededBy' in one))
        expect(records).toHaveLength(1)
      }),
      { numRuns: 60 },
    )
    expect(Math.min(...Object.values(joinedIn))).toBeGreaterThan(5)
  }, 120_000)

  it('take part in one sync when their steps overlap', async () => {
    for (let round = 0; round < 25; round++) {
      for (const database of [older(), newer()]) await database.dropDatabase()
      const instances = [earlierRelease(), thisRelease(), earlierRelease(), thisRelease()]
      const run = async (one: Starting): Promise<void> => {
        while (await one.step());
      }
      await Promise.all(instances.map(run))
      const joined = new Set(instances.map((one) => one.joined))
      joined.delete(null)
      expect([...joined]).toHaveLength(1)
    }
  }, 120_000)
})

describe('a reservation', () => {
  beforeEach(async () => {
    expect(await reservation().reserve()).toBe(true)
  })

  it('is refused by an earlier release, and may be repeated', async () => {
    const instance = earlierRelease()
    while (await instance.step());
    expect(instance.joined).toBeNull()
    expect(await reservation().reserve()).toBe(true)
    expect(await ids(older())).toEqual([
      { _id: 'sync', schemaVersion: 4, supersededBy: metadataDatabase, reservedAt: expect.any(Date) },
    ])
  })

  it('is removed with its collection when it has expired, and not before', async () => {
    await reservation().removeExpired()
    expect(await ids(older())).toHaveLength(1)
    await reservation().removeExpired(0)
    expect(await older().listCollections().toArray()).toEqual([])
    await reservation().removeExpired(0)
  })

  it('is not removed in place of the record of a sync', async () => {
    await older().dropDatabase()
    await new Metadata(two.destination, two.context, undefined, olderMetadataDatabase).createSync(storedRecord)
    await reservation().removeExpired(0)
    expect(await ids(older())).toHaveLength(1)
    expect(await reservation().reserve()).toBe(false)
  })
})
