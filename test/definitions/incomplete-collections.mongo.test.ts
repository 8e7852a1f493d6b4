import { type Binary, UUID } from 'mongodb'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { IncompleteCollections } from '../../src/definitions/incomplete-collections.ts'
import { Catalog, newEntry } from '../../src/domain/catalog.ts'
import { parseChangeEvent } from '../../src/domain/change-event.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { nested, rawDocument } from '../support/bson-values.ts'

/**
 * A moveCollection, unshardCollection or reshardCollection ends on the source. Up to 7.0, the shards have the new collection when
 * tandem reads the event. In later releases they may still have the former collection.
 */

const one = oneSet()

const identityOf = async (name: string): Promise<string> => {
  const [found] = await one.client.db('app').listCollections({ name }).toArray()
  return fromUuid((found as unknown as { info: { uuid: Binary } }).info.uuid)
}

/** Returns the event that 8.0 emits after a moveCollection, with the fields that the pipeline of tandem's stream keeps. */
function ended(formerUuid: string, newUuid: UUID) {
  const bytes = rawDocument([
    ['operationType', 'reshardCollection'],
    ['collectionUUID', new UUID(Buffer.from(formerUuid, 'latin1'))],
    ['ns', nested(Object.entries({ db: 'app', coll: 'things' }))],
    ['operationDescription', nested([['reshardUUID', newUuid]])],
  ])
  return parseChangeEvent(bytes)
}

/** Replaces the collection as the shards do: from one moment on, its name belongs to a collection with the new UUID. */
async function switchTo(newUuid: UUID): Promise<void> {
  const create = { op: 'c', ns: 'app.$cmd', ui: newUuid, o: { create: 'system.resharding.new' } }
  await one.client.db('admin').command({ applyOps: [create] })
  const rename = { renameCollection: 'app.system.resharding.new', to: 'app.things', dropTarget: true }
  await one.client.db('admin').command(rename)
}

describe('after the event that ends a resharding', () => {
  let former: string
  let newUuid: UUID
  let catalog: Catalog
  beforeEach(async () => {
    await one.client.db('app').dropDatabase()
    await one.client.db('app').createCollection('things')
    former = await identityOf('things')
    newUuid = new UUID()
    catalog = new Catalog()
    catalog.add(newEntry('app', { uuid: former, name: 'things' }, { options: [], indexes: [] }, 'copied'))
  })

  function incomplete() {
    const context = testContext()
    const selection = new Selection(one.cluster, { includeNamespaces: null, excludeNamespaces: null })
    const parts = { source: one.cluster, catalog, selection, shardingEntries: [], context }
    return { context, collections: new IncompleteCollections(parts) }
  }

  it('tandem converges the new collection if the source already has it', async () => {
    await switchTo(newUuid)
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([fromUuid(newUuid)])
  })

  it('tandem waits for the new collection while the source still has the former one', async () => {
    const { context, collections } = incomplete()
    const found = collections.after(ended(former, newUuid))
    await vi.waitFor(() => expect(String(context.retried.at(-1)?.error)).toContain('still have the former collection'))
    await switchTo(newUuid)
    expect(await found).toEqual([fromUuid(newUuid)])
  })

  it('tandem converges nothing if a later operation has replaced both collections', async () => {
    await switchTo(new UUID())
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([])
  })

  it('tandem does not converge the new collection again if it has already read events of that collection', async () => {
    await switchTo(newUuid)
    const entry = newEntry('app', { uuid: fromUuid(newUuid), name: 'things' }, { options: [], indexes: [] }, 'copied')
    catalog.add({ ...entry, convergedFrom: 5n })
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([])
  })
})
