import type { Document } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { DestinationDefinitions } from '../../src/definitions/destination-definitions.ts'
import { listCollections } from '../../src/definitions/listing.ts'
import { DefinitionReconciler } from '../../src/definitions/reconcile-definitions.ts'
import { Catalogue } from '../../src/domain/catalogue.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { fromTimestamp } from '../../src/mongo/cluster.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { destinationName, emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { type TestContext, testContext } from '../mongo/clusters.ts'
import { failPoint } from '../support/fail-point.ts'

/** Definitions that change on the source while they are followed, and faults in the middle of it. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

interface Life {
  catalogue: Catalogue
  context: TestContext
  definitions: DefinitionReconciler
  destination: DestinationDefinitions
  reconcile(newState?: 'copied' | 'refused'): Promise<unknown>
}

/** A process, with the catalogue as its predecessor has stored it. */
async function live(): Promise<Life> {
  const context = testContext()
  const metadata = new Metadata(two.destination, context)
  const catalogue = new Catalogue()
  for (const entry of await metadata.collections.load()) catalogue.add(entry)
  const destination = new DestinationDefinitions(two.destination, 'beforeDataCopy')
  const definitions = new DefinitionReconciler({
    source: two.source,
    catalogue,
    metadata,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    destination,
    context,
  })
  return {
    ...{ catalogue, context, definitions, destination },
    reconcile: (newState = 'copied') => definitions.reconcile('app', 'all', newState),
  }
}

const twin = (field: string) => ({ unique: true, name: `${field}_unique` })
const source = () => two.sourceClient.db('app')
const standing = async () => {
  const listed = await listCollections(two.destination, 'app')
  return new Map(listed.map(({ name, uuid }) => [name, uuid]))
}
const stored = async () => {
  const entries = await two.metadata.collections.load()
  return new Map(entries.map(({ name, destinationUUID }) => [name, destinationUUID]))
}
/** A command of tandem's on one collection fails for now, and is tried again and again. */
const holdUp = (command: string, namespace: string, mode: unknown = 'alwaysOn') => {
  const data = { failCommands: [command], namespace, errorCode: 91, appName: destinationName }
  return failPoint(two.destinationClient, 'failCommand', data, mode)
}
const heldUp = ({ context }: Life) => vi.waitFor(() => expect(context.retried).not.toEqual([]), { timeout: 10_000 })

describe('a collection whose creation is held up', () => {
  it.each(['create', 'createIndexes'])('at %s, and that the source renames meanwhile, stands once', async (command) => {
    await source().createCollection('before')
    await source().collection('before').createIndex({ a: 1 })
    const life = await live()
    const point = await holdUp(command, 'app.before')
    const reconciled = life.reconcile()
    await heldUp(life)
    await source().collection('before').rename('after')
    await point.release()
    await reconciled
    expect([...(await standing()).keys()]).toEqual(['after'])
    expect(await stored()).toEqual(await standing())
    expect(life.catalogue.entries().map(({ name }) => name)).toEqual(['after'])
  })

  it.each(['create', 'createIndexes'])('at %s, and that the source drops meanwhile, is gone', async (command) => {
    await source().createCollection('gone')
    await source().collection('gone').createIndex({ a: 1 })
    const life = await live()
    const point = await holdUp(command, 'app.gone')
    const reconciled = life.reconcile()
    await heldUp(life)
    await source().collection('gone').drop()
    await point.release()
    await reconciled
    expect(await standing()).toEqual(new Map())
    expect(await stored()).toEqual(new Map())
    expect(life.catalogue.entries()).toEqual([])
  })

  it('leaves another one alone that takes the name it was to have', async () => {
    await source().createCollection('other')
    await (await live()).reconcile()
    const other = (await standing()).get('other') as string
    await two.destinationClient.db('app').collection('other').insertOne({ a: 1 })
    await source().createCollection('wanted')
    const first = await live()
    const wanted = await holdUp('create', 'app.wanted')
    first.reconcile().catch(() => {}) // dies
    await heldUp(first)
    first.context.stop()
    await wanted.release()
    expect((await stored()).get('wanted')).toBeNull()
    await source().collection('wanted').rename('moved')
    await source().collection('other').rename('wanted')

    const second = await live()
    const storing = await holdUp('update', 'tandem_internal.collections', { skip: 1 })
    second.reconcile().catch(() => {}) // dies as well, when the other one has the name
    await heldUp(second)
    second.context.stop()
    await storing.release()
    expect((await standing()).get('wanted')).toBe(other)

    await (await live()).reconcile()
    expect((await standing()).get('wanted')).toBe(other)
    expect([...(await standing()).keys()].sort()).toEqual(['moved', 'wanted'])
    expect(await stored()).toEqual(await standing())
  })
})

describe('options', () => {
  const validator = { a: { $gt: 1 } }
  const validatorOf = async (db: ReturnType<typeof source>) => {
    const [listed] = await db.listCollections({ name: 'things' }).toArray()
    return (listed as { options?: { validator?: unknown } })?.options?.validator
  }
  const destination = () => two.destinationClient.db('app')

  it('that were set and not stored, and changed back on the source since, are the source’s at commit', async () => {
    await source().createCollection('things')
    await (await live()).reconcile()
    await destination().command({ collMod: 'things', validator })
    await (await live()).reconcile('refused')
    expect(await validatorOf(destination())).toEqual(await validatorOf(source()))
  })

  it('are stored before the indexes are built', async () => {
    await source().createCollection('things')
    await (await live()).reconcile()
    await source().command({ collMod: 'things', validator })
    await source().collection('things').createIndex({ a: 1 })
    const life = await live()
    const point = await holdUp('createIndexes', 'app.things')
    const reconciled = life.reconcile()
    await heldUp(life)
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

  it('says up to when, and of which collections the indexes, it has followed everything', async () => {
    await source().createCollection('old')
    const life = await live()
    await life.reconcile()
    const [old = ''] = life.catalogue.entries().map(({ uuid }) => uuid)
    await source().createCollection('new')
    const { operationTime } = await source().command({ ping: 1 })
    await two.source.read('admin', { ping: 1 })
    const seen = await life.definitions.reconcile('app', none, 'copied')
    expect(seen.database).toBe('app')
    expect(seen.time).toBeGreaterThanOrEqual(fromTimestamp(operationTime))
    const fresh = life.catalogue.entries().find(({ name }) => name === 'new')
    expect(seen.indexesOf).toEqual(new Set([fresh?.uuid]))
    expect((await life.definitions.reconcile('app', new Set([old]), 'copied')).indexesOf).toEqual(new Set([old]))
  })

  it('follows the indexes of all collections of a small database, when asked to prefetch', async () => {
    await source().createCollection('a')
    await source().createCollection('b')
    const life = await live()
    await life.reconcile()
    await source().collection('a').createIndex({ x: 1 })
    await life.definitions.reconcile('app', none, 'copied')
    expect(await indexed('a')).toBe(0)
    expect((await life.definitions.reconcile('app', none, 'copied', 1)).indexesOf).toEqual(new Set())
    expect(await indexed('a')).toBe(0)
    const seen = await life.definitions.reconcile('app', none, 'copied', 2)
    // What was as before is not told: only what was made equal counts.
    const [a] = life.catalogue.entries().filter(({ name }) => name === 'a')
    expect(seen.indexesOf).toEqual(new Set([a?.uuid]))
    expect([await indexed('a'), await indexed('b')]).toEqual([1, 0])
    await source().collection('a').dropIndex('x_1')
    await life.definitions.reconcile('app', none, 'copied', 2)
    expect(await indexed('a')).toBe(0)
  })
})

describe('views on views', () => {
  it('whose collation changed together follow, whichever of them is listed first', async () => {
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
    const life = await live()
    await life.reconcile()
    for (const name of ['a on b', 'b', 'c', 'd on c']) await source().collection(name).drop()
    await define('fr')
    await life.reconcile()
    const views = await two.destinationClient.db('app').listCollections({ type: 'view' }).toArray()
    const localeOf = (view: Document): unknown => view['options'].collation?.locale
    const locales = views.map((view) => [view.name, localeOf(view)])
    expect(locales.sort()).toEqual(['a on b', 'b', 'c', 'd on c'].map((name) => [name, 'fr']))
  })
})

describe('told to stop', () => {
  it('it builds no further index, of this collection or of the next', async () => {
    const names = ['one', 'two', 'three']
    for (const name of names) await source().createCollection(name)
    await (await live()).reconcile()
    for (const name of names) await source().collection(name).createIndex({ a: 1 })
    const life = await live()
    const data = { failCommands: ['createIndexes'], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
    await using slow = await failPoint(two.destinationClient, 'failCommand', data)
    const reconciled = life.reconcile('refused')
    await slow.reached()
    life.context.stop()
    await expect(reconciled).rejects.toBeInstanceOf(StoppedError)
    await slow.release()
    const built = async () => {
      const all = names.map((name) => two.destinationClient.db('app').collection(name).indexes())
      return (await Promise.all(all)).flat().filter(({ name }) => name === 'a_1').length
    }
    expect(await built()).toBe(1)
    await (await live()).reconcile('refused')
    expect(await built()).toBe(3)
  })

  it('it builds no further conflicting index', async () => {
    const fields = ['a', 'b', 'c']
    // While `unique` is held back the two of a field are one index, so the second one is built at commit.
    for (const field of fields)
      await source()
        .collection('one')
        .createIndex({ [field]: 1 })
    for (const field of fields)
      await source()
        .collection('one')
        .createIndex({ [field]: 1 }, twin(field))
    const life = await live()
    await life.reconcile()
    const data = { failCommands: ['createIndexes'], appName: destinationName, blockConnection: true, blockTimeMS: 500 }
    const [entry] = life.catalogue.entries()
    if (!entry) throw new Error('it was just created')
    await using slow = await failPoint(two.destinationClient, 'failCommand', data)
    const built = life.destination.buildConflicting(entry, 'unique')
    await slow.reached()
    life.context.stop()
    await expect(built).rejects.toBeInstanceOf(StoppedError)
    const twins = async () => {
      const all = await two.destinationClient.db('app').collection('one').indexes()
      return all.filter(({ unique }) => unique).length
    }
    expect(await twins()).toBe(1)
    await slow.release()
    await (await live()).destination.buildConflicting(entry, 'unique')
    expect(await twins()).toBe(fields.length)
  })
})
