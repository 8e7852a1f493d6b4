import type { Document } from 'mongodb'
import { type InventoryCluster, isUnknown } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { canonical, shellDatabase, shellText, shellValue } from './shell-text.ts'

/** Atlas Search and Vector Search indexes. Only servers with a search server have them. */
export const searchIndexes: Kind = {
  name: 'search index',
  privilege: 'listSearchIndexes on every collection (in the role readAnyDatabase of 7.0 and later)',
  read: readIndexes,
  commands,
}

async function readIndexes(cluster: InventoryCluster): Promise<Item[] | null> {
  const items: Item[] = []
  try {
    for (const database of await cluster.databases()) {
      const { cursor } = await cluster.read(database, {
        listCollections: 1,
        nameOnly: true,
        cursor: { batchSize: 1e6 },
      })
      const listed = (cursor.firstBatch as Document[]).filter(
        ({ name, type }) => type === 'collection' && !name.startsWith('system.'),
      )
      for (const { name: collection } of listed) {
        const found = await cluster.aggregate(database, collection, [{ $listSearchIndexes: {} }])
        items.push(...found.map((index) => toItem(database, collection, index)))
      }
    }
  } catch (error) {
    if (isUnknown(error)) return null
    throw error
  }
  return items
}

function toItem(database: string, collection: string, { name, type, latestDefinition }: Document): Item {
  return {
    name: `${name} on ${database}.${collection}`,
    value: { database, collection, name, type: type ?? 'search', definition: latestDefinition },
  }
}

function commands({ how, ours, theirs }: Pair): Command[] {
  const { database, collection, name, type, definition } = (ours ?? theirs).value
  const target = `${shellDatabase(database)}.getCollection(${shellText(collection)})`
  const drop = { text: `${target}.dropSearchIndex(${shellText(name)})`, review: 'removes an index' }
  if (how === 'extra') return [drop]
  const create = `${target}.createSearchIndex(${[shellText(name), shellText(type), shellValue(definition)].join(', ')})`
  if (how === 'missing') return [{ text: create }]
  if (canonical(theirs.value['type']) !== canonical(type))
    return [drop, { text: create, review: 'run it after the removal' }]
  return [{ text: `${target}.updateSearchIndex(${shellText(name)}, ${shellValue(definition)})` }]
}
