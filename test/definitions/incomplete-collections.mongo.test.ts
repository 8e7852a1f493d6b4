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
 * The end of a moveCollection, unshardCollection or reshardCollection as the source's shards show it: until 7.0 they
 * have the new collection when its event is read, later releases may still have the former one.
 */

const one = oneSet()

const identityOf = async (name: string): Promise<string> => {
  const [found] = await one.client.db('app').listCollections({ name }).toArray()
  return fromUuid((found as unknown as { info: { uuid: Binary } }).info.uuid)
}

/** The event as 8.0 writes it after a moveCollection, with the fields that tandem's stream leaves. */
function ended(formerUuid: string, newUuid: UUID) {
  const bytes = rawDocument([
    ['operationType', 'reshardCollection'],
    ['collectionUUID', new UUID(Buffer.from(formerUuid, 'latin1'))],
    ['ns', nested(Object.entries({ db: 'app', coll: 'things' }))],
    ['operationDescription', nested([['reshardUUID', newUuid]])],
  ])
  return parseChangeEvent(bytes)
}

/** What the shards do when they switch: at one moment, the name belongs to a collection with the new UUID. */
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

  it('the new collection is converged when the source already has it', async () => {
    await switchTo(newUuid)
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([fromUuid(newUuid)])
  })

  it('the new collection is waited for while the source still has the former one', async () => {
    const { context, collections } = incomplete()
    const found = collections.after(ended(former, newUuid))
    await vi.waitFor(() => expect(String(context.retried.at(-1)?.error)).toContain('still have the former collection'))
    await switchTo(newUuid)
    expect(await found).toEqual([fromUuid(newUuid)])
  })

  it('nothing is converged when a later operation has replaced both', async () => {
    await switchTo(new UUID())
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([])
  })

  it('nothing is converged again when events of the new collection came first', async () => {
    await switchTo(newUuid)
    const entry = newEntry('app', { uuid: fromUuid(newUuid), name: 'things' }, { options: [], indexes: [] }, 'copied')
    catalog.add({ ...entry, convergedFrom: 5n })
    expect(await incomplete().collections.after(ended(former, newUuid))).toEqual([])
  })
})
