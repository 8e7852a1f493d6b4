import type { Document } from 'mongodb'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { electionOf, listCollections } from '../../src/definitions/listing.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import { indexName } from '../../src/domain/definition.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { fromTimestamp } from '../../src/mongo/cluster.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { destinationName, emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { type TestContext, testContext } from '../mongo/clusters.ts'
import { failPoint } from '../support/fail-point.ts'

/** Definitions change on the source while tandem follows them, and faults happen in between. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

interface Instance {
  catalog: Catalog
  context: TestContext
  definitions: DefinitionReconciler
  destination: DestinationDefinitions
  reconcile(newState?: 'copied' | 'refused'): Promise<unknown>
}

/** Starts an instance with the catalog that the previous instance has stored. */
async function startInstance(): Promise<Instance> {
  const context = testContext()
  const metadata = new Metadata(two.destination, context)
  const catalog = new Catalog()
  for (const entry of await metadata.collections.load()) catalog.add(entry)
  const destination = new DestinationDefinitions(two.destination, 'beforeDataCopy')
  const definitions = new DefinitionReconciler({
    source: two.source,
    catalog,
    metadata,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    destination,
    context,
  })
  return {
    ...{ catalog, context, definitions, destination },
    reconcile: (newState = 'copied') => definitions.reconcile('app', 'all', newState),
  }
}

const uniqueIndex = (field: string) => ({ unique: true, name: `${field}_unique` })
const source = () => two.sourceClient.db('app')
const existing = async () => {
  const listed = await listCollections(two.destination, 'app')
  return new Map(listed.map(({ name, uuid }) => [name, uuid]))
}
const stored = async () => {
  const entries = await two.metadata.collections.load()
  return new Map(entries.map(({ name, destinationUUID }) => [name, destinationUUID]))
}
/** Makes one of tandem's commands on one collection fail, so that it is retried until the fail point is released. */
const failCommand = (command: string, namespace: string, mode: unknown = 'alwaysOn') => {
  const data = { failCommands: [command], namespace, errorCode: 91, appName: destinationName }
  return failPoint(two.destinationClient, 'failCommand', data, mode)
}
const untilRetried = ({ context }: Instance) =>
  vi.waitFor(() => expect(context.retried).not.toEqual([]), { timeout: 10_000 })

describe('a collection whose creation is retried', () => {
  it.each(['create', 'createIndexes'])('at %s exists only once if the source renames it meanwhile', async (command) => {
    await source().createCollection('before')
    await source().collection('before').createIndex({ a: 1 })
    const instance = await startInstance()
    const point = await failCommand(command, 'app.before')
    const reconciled = instance.reconcile()
    await untilRetried(instance)
    await source().collection('before').rename('after')
    await point.release()
    await reconciled
    expect([...(await existing()).keys()]).toEqual(['after'])
    expect(await stored()).toEqual(await existing())
    expect(instance.catalog.entries().map(({ name }) => name)).toEqual(['after'])
  })

  it.each(['create', 'createIndexes'])(
    'at %s does not exist afterwards if the source drops it meanwhile',
    async (command) => {
      await source().createCollection('gone')
      await source().collection('gone').createIndex({ a: 1 })
      const instance = await startInstance()
      const point = await failCommand(command, 'app.gone')
      const reconciled = instance.reconcile()
      await untilRetried(instance)
      await source().collection('gone').drop()
      await point.release()
      await reconciled
      expect(await existing()).toEqual(new Map())
      expect(await stored()).toEqual(new Map())
      expect(instance.catalog.entries()).toEqual([])
    },
  )

  it('does not affect another collection that takes its intended name', async () => {
    await source().createCollection('other')
    await (await startInstance()).reconcile()
    const other = (await existing()).get('other') as string
    await two.destinationClient.db('app').collection('other').insertOne({ a: 1 })
    await source().createCollection('wanted')
    const first = await startInstance()
    const wanted = await failCommand('create', 'app.wanted')
    first.reconcile().catch(() => {}) // this instance crashes
    await untilRetried(first)
    first.context.stop()
    await wanted.release()
    expect((await stored()).get('wanted')).toBeNull()
    await source().collection('wanted').rename('moved')
    await source().collection('other').rename('wanted')

    const second = await startInstance()
    const storing = await failCommand('update', `${metadataDatabase}.collections`, { skip: 1 })
    second.reconcile().catch(() => {}) // this instance crashes too, after the other collection has taken the name
    await untilRetried(second)
    second.context.stop()
    await storing.release()
    expect((await existing()).get('wanted')).toBe(other)

    await (await startInstance()).reconcile()
    expect((await existing()).get('wanted')).toBe(other)
    expect([...(await existing()).keys()].sort()).toEqual(['moved', 'wanted'])
    expect(await stored()).toEqual(await existing())
  })
})

describe('options', () => {
  const validator = { a: { $gt: 1 } }
  const validatorOf = async (db: ReturnType<typeof source>) => {
    const [listed] = await db.listCollections({ name: 'things' }).toArray()
    return (listed as { options?: { validator?: unknown } })?.options?.validator
  }
  const destination = () => two.destinationClient.db('app')

  it('that tandem has set but not stored, and that the source then changes back, equal those of the source at the commit', async () => {
    await source().createCollection('things')
    await (await startInstance()).reconcile()
    await destination().command({ collMod: 'things', validator })
    await (await startInstance()).reconcile('refused')
    expect(await validatorOf(destination())).toEqual(await validatorOf(source()))
  })

  it('are stored before the indexes are built', async () => {
    await source().createCollection('things')
    await (await startInstance()).reconcile()
    await source().command({ collMod: 'things', validator })
    await source().collection('things').createIndex({ a: 1 })
    const instance = await startInstance()
    const point = await failCommand('createIndexes', 'app.things')
    const reconciled = instance.reconcile()
    await untilRetried(instance)
    expect(await validatorOf(destination())).toEqual(validator)
    await source().command({ collMod: 'things', validator: {} })
    await point.release()
    await reconciled
    expect((await validatorOf(destination())) ?? {}).toEqual({})
  })
})

describe('a read of the catalog of a database', () => {
  const none: ReadonlySet<string> = new Set()
  const indexed = async (name: string) => (await two.destinationClient.db('app').collection(name).indexes()).length - 1

  it('returns the time up to which definitions are followed, and the collections whose indexes are followed', async () => {
    await source().createCollection('old')
    const instance = await startInstance()
    await instance.reconcile()
    const [old = ''] = instance.catalog.entries().map(({ uuid }) => uuid)
    await source().createCollection('new')
    const { operationTime } = await source().command({ ping: 1 })
    await two.source.read('admin', { ping: 1 })
    const observed = await instance.definitions.reconcile('app', none, 'copied')
    expect(observed.database).toBe('app')
    expect(observed.time).toBeGreaterThanOrEqual(fromTimestamp(operationTime))
    const fresh = instance.catalog.entries().find(({ name }) => name === 'new')
    expect(observed.indexesOf).toEqual(new Set([fresh?.uuid]))
    expect((await instance.definitions.reconcile('app', new Set([old]), 'copied')).indexesOf).toEqual(new Set([old]))
  })

  // The indexes of a large database are read with `$listCatalog`.
  it.each([
    ['small', 2],
    ['large', 40],
  ])('follows the indexes of all collections of a %s database when it prefetches', async (_, count) => {
    const names = ['a', 'b', ...Array.from({ length: count - 2 }, (__, at) => `c${at}`)]
    for (const name of names) await source().createCollection(name)
    // The server stores this number as it was sent. listIndexes returns a boolean.
    await source().command({ createIndexes: 'b', indexes: [{ key: { z: 1 }, name: 'z_1', sparse: 1 }] })
    const instance = await startInstance()
    await instance.reconcile()
    await source().collection('a').createIndex({ x: 1 })
    await instance.definitions.reconcile('app', none, 'copied')
    expect(await indexed('a')).toBe(0)
    const observed = await instance.definitions.reconcile('app', none, 'copied', true)
    // tandem does not report the indexes of a prefetched collection if they have not changed, because it has not read the destination.
    const [a] = instance.catalog.entries().filter(({ name }) => name === 'a')
    expect(observed.indexesOf).toEqual(new Set([a?.uuid]))
    expect([await indexed('a'), await indexed('b')]).toEqual([1, 1])
    expect((await instance.definitions.reconcile('app', none, 'copied', true)).indexesOf).toEqual(new Set())
    await source().collection('a').dropIndex('x_1')
    await instance.definitions.reconcile('app', none, 'copied', true)
    expect(await indexed('a')).toBe(0)
  })

  it.each(['prefetched', 'touched'])('stores changed indexes that are %s', async (how) => {
    await source().createCollection('a')
    const instance = await startInstance()
    await instance.reconcile()
    const uuids = new Set(instance.catalog.entries().map(({ uuid }) => uuid))
    const followed = async () => {
      await instance.definitions.reconcile('app', how === 'touched' ? uuids : none, 'copied', how === 'prefetched')
      const entries = await two.metadata.collections.load()
      return entries.map(({ wanted }) => wanted.indexes.map(indexName))
    }
    await source().collection('a').createIndex({ x: 1 })
    expect(await followed()).toEqual([['x_1']])
    await source().collection('a').dropIndex('x_1')
    await source().collection('a').createIndex({ y: 1 })
    expect(await followed()).toEqual([['y_1']])
    await source().collection('a').dropIndex('y_1')
    expect(await followed()).toEqual([[]])
  })

  it('does not return a collection whose prefetched indexes the destination refuses, so that its event builds them', async () => {
    await source().createCollection('a')
    const instance = await startInstance()
    await instance.reconcile()
    const [uuid = ''] = instance.catalog.entries().map((entry) => entry.uuid)
    const copied = two.destinationClient.db('app').collection('a')
    // A document that the source has changed since, so that only the source can build the index.
    await copied.insertOne({ x: [1, 2], y: [1, 2] })
    await source().collection('a').createIndex({ x: 1, y: 1 })
    const prefetch = async () => (await instance.definitions.reconcile('app', none, 'copied', true)).indexesOf
    expect(await prefetch()).toEqual(new Set())
    expect(instance.catalog.get(uuid)?.refusedIndexes).toEqual(['x_1_y_1'])
    expect(await prefetch()).toEqual(new Set())
    await copied.updateMany({}, { $set: { y: 1 } })
    expect((await instance.definitions.reconcile('app', new Set([uuid]), 'copied')).indexesOf).toEqual(new Set([uuid]))
    expect(await indexed('a')).toBe(1)
    expect((await two.metadata.collections.load()).map(({ refusedIndexes }) => refusedIndexes)).toEqual([[]])
  })
})

describe('the creation of the initial catalog', () => {
  // The source shows a drop and a rename only after the read, which is what a rollback of the read definitions looks like.
  it.each([
    ['before the collections are created', false, false],
    ['after the collections are created', true, false],
    ['while a creation fails too', false, true],
  ])('is repeated when the proof of its read fails %s', async (_, isAfter, fails) => {
    for (const name of ['kept', 'gone', 'before']) await source().createCollection(name)
    await source().collection('before').createIndex({ a: 1 })
    const instance = await startInstance()
    const point = fails ? await failCommand('create', 'app.gone') : null
    const run = two.source.run.bind(two.source)
    let hellos = 0
    const runs = vi.spyOn(two.source, 'run').mockImplementation(async (...asked) => {
      const reply = await run(...asked)
      if (asked[1]['hello'] === undefined) return reply
      hellos += 1
      // The first hello precedes the read of the definitions, and the second is part of its proof.
      if (hellos !== 2) return reply
      if (isAfter) await vi.waitFor(async () => expect([...(await stored()).values()].filter(Boolean)).toHaveLength(3))
      await point?.reached()
      await source().collection('gone').drop()
      await source().collection('before').rename('after')
      return { ...reply, electionId: 'another term' }
    })
    onTestFinished(() => runs.mockRestore())
    const creation = { election: electionOf(two.source), prepared: Promise.resolve() }
    const created = instance.definitions.reconcile('app', 'all', 'copying', false, creation)
    await untilRetried(instance)
    await point?.release()
    await created
    expect(instance.context.retried).toMatchObject([
      { error: { message: 'the primary changed during a catalog read' } },
    ])
    expect(hellos).toBe(4)
    expect([...(await existing()).keys()].sort()).toEqual(['after', 'kept'])
    expect([...(await stored()).values()].every((uuid) => uuid !== null)).toBe(true)
    expect(await stored()).toEqual(await existing())
    const entries = instance.catalog.entries()
    expect(new Map(entries.map(({ name, destinationUUID }) => [name, destinationUUID]))).toEqual(await existing())
    const indexes = await two.destinationClient.db('app').collection('after').indexes()
    expect(indexes.map(({ name }) => name)).toEqual(['_id_', 'a_1'])
  })
})

describe('views on views', () => {
  it('are followed when their collations change together, in any order of the listing', async () => {
    await source().createCollection('things')
    const define = async (locale: string): Promise<void> => {
      const collation = { locale }
      for (const [name, viewOn] of [
        ['a on b', 'b'],
        ['b', 'things'],
        ['c', 'things'],
        ['d on c', 'c'],
      ] as const) {
        await source().createCollection(name, { viewOn, pipeline: [], collation })
      }
    }
    await define('en')
    const instance = await startInstance()
    await instance.reconcile()
    for (const name of ['a on b', 'b', 'c', 'd on c']) await source().collection(name).drop()
    await define('fr')
    await instance.reconcile()
    const views = await two.destinationClient.db('app').listCollections({ type: 'view' }).toArray()
    const localeOf = (view: Document): unknown => view['options'].collation?.locale
    const locales = views.map((view) => [view.name, localeOf(view)])
    expect(locales.sort()).toEqual(['a on b', 'b', 'c', 'd on c'].map((name) => [name, 'fr']))
  })
})

describe('a stop', () => {
  it('prevents further index builds, also of other collections', async () => {
    const names = ['one', 'two', 'three', 'four', 'five']
    for (const name of names) await source().createCollection(name)
    await (await startInstance()).reconcile()
    for (const name of names) await source().collection(name).createIndex({ a: 1 })
    const instance = await startInstance()
    const data = { failCommands: ['createIndexes'], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
    await using slow = await failPoint(two.destinationClient, 'failCommand', data)
    const reconciled = instance.reconcile('refused')
    await slow.reached()
    instance.context.stop()
    await expect(reconciled).rejects.toBeInstanceOf(StoppedError)
    await slow.release()
    const built = async () => {
      const all = names.map((name) => two.destinationClient.db('app').collection(name).indexes())
      return (await Promise.all(all)).flat().filter(({ name }) => name === 'a_1').length
    }
    // Three collections are followed at a time.
    expect(await built()).toBeLessThanOrEqual(3)
    await (await startInstance()).reconcile('refused')
    expect(await built()).toBe(5)
  })

  it('prevents further builds of conflicting indexes', async () => {
    const fields = ['a', 'b', 'c']
    // While `unique` is deferred, the two indexes of a field conflict, so the second one is built at commit.
    for (const field of fields)
      await source()
        .collection('one')
        .createIndex({ [field]: 1 })
    for (const field of fields)
      await source()
        .collection('one')
        .createIndex({ [field]: 1 }, uniqueIndex(field))
    const instance = await startInstance()
    await instance.reconcile()
    const data = { failCommands: ['createIndexes'], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
    const [entry] = instance.catalog.entries()
    if (!entry) throw new Error('the catalog has no entry')
    await using slow = await failPoint(two.destinationClient, 'failCommand', data)
    const built = instance.destination.indexes.buildConflicting(entry, 'unique')
    await slow.reached()
    instance.context.stop()
    await expect(built).rejects.toBeInstanceOf(StoppedError)
    const uniqueIndexes = async () => {
      const all = await two.destinationClient.db('app').collection('one').indexes()
      return all.filter(({ unique }) => unique).length
    }
    expect(await uniqueIndexes()).toBe(1)
    await slow.release()
    await (await startInstance()).destination.indexes.buildConflicting(entry, 'unique')
    expect(await uniqueIndexes()).toBe(fields.length)
  })
})

it('an index that no longer exists when tandem drops it counts as dropped', async () => {
  await source().collection('things').createIndex({ a: 1 })
  const instance = await startInstance()
  await instance.reconcile()
  await source().collection('things').dropIndex('a_1')
  const things = two.destinationClient.db('app').collection('things')
  const write = two.destination.write.bind(two.destination)
  const writes = vi.spyOn(two.destination, 'write').mockImplementation(async (...command) => {
    // This represents a delayed command of a former coordinator.
    if ('dropIndexes' in command[1]) await things.dropIndex('a_1')
    return await write(...command)
  })
  onTestFinished(() => writes.mockRestore())
  await instance.reconcile()
  expect(writes.mock.calls.filter(([, command]) => 'dropIndexes' in command)).toHaveLength(1)
  expect((await things.indexes()).map(({ name }) => name)).toEqual(['_id_'])
})
