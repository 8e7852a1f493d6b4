import type { Catalogue, CatalogueEntry } from '../domain/catalogue.ts'
import type { ChangeEvent } from '../domain/change-event.ts'
import { type IndexSpecification, indexName } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import type { RawFields } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { listCollections, listDatabases, listIndexesOf, readCommitted } from './listing.ts'

/**
 * A source older than 6.0 emits events for drops and renames, but not for creations, indexes or options, so its
 * definitions must not change during the sync. An emitted change ends the sync at once; a silent change ends it at the
 * next check. Views are made equal at commit.
 */

/** Throws FatalError UnsupportedChange for any change of a user definition. */
export function refuseEmittedChange({ operationType, database, collection }: ChangeEvent): void {
  if (collection !== '' && !isUserCollection(collection)) return
  throw new FatalError('UnsupportedChange', `${nameOf(database, collection)} had a ${operationType}${startOver}`)
}

const startOver =
  ' on the source during the sync. From a source older than 6.0 tandem follows changes of documents only. Start over with an ' +
  `emptied destination, and do not change definitions until COMMITTED. ${notLost.source}`
const undo =
  ' on the source during the sync. From a source older than 6.0 tandem follows changes of documents only. Undo that and send ' +
  `resume, or start over with an emptied destination. ${notLost.source}`

/**
 * Throws FatalError UnsupportedChange when a definition differs from the copied one and a committed read confirms it.
 */
export async function refuseSilentChanges(
  source: Cluster,
  catalogue: Catalogue,
  selection: Selection,
  withIndexes: boolean,
): Promise<void> {
  const selected = await selection.databases(await listDatabases(source))
  await inParallel(databasesAtOnce, [...new Set([...selected, ...catalogue.databases()])], async (database) => {
    const find = (): Promise<string | null> => findChange(source, catalogue, selection, database, withIndexes)
    if ((await find()) === null) return
    // A primary that is about to be deposed may show a change that will be rolled back.
    const change = await readCommitted(source, find)
    if (change) throw new FatalError('UnsupportedChange', change)
  })
}

const databasesAtOnce = 4

async function findChange(
  source: Cluster,
  catalogue: Catalogue,
  selection: Selection,
  database: string,
  withIndexes: boolean,
): Promise<string | null> {
  const all = await selection.among(database, await listCollections(source, database))
  const listed = all.filter((one) => one.type !== 'view')
  const present = new Set(listed.map(({ uuid }) => uuid))
  const gone = catalogue.inDatabase(database).find(({ uuid }) => !present.has(uuid))
  if (gone) return `${namespace(database, gone.sourceName)} was dropped${startOver}`
  const located = listed.map(({ uuid, name }) => ({ database, uuid, name }))
  const indexes = withIndexes ? await listIndexesOf(source, located) : null
  for (const one of listed) {
    const entry = catalogue.get(one.uuid)
    if (!entry) return `${namespace(database, one.name)} was created${startOver}`
    if (entry.sourceName !== one.name) return `${namespace(database, entry.sourceName)} was renamed${startOver}`
    if (!sameFields(entry.wanted.options, one.options)) {
      return `the options of ${namespace(database, one.name)} were changed${undo}`
    }
    const index = indexes ? changedIndex(entry, indexes.get(one.uuid) ?? []) : null
    if (index !== null) return `the index ${index} of ${namespace(database, one.name)} was changed${undo}`
  }
  return null
}

/** The name of an index that was created, dropped or changed; null when no index changed. */
function changedIndex(entry: CatalogueEntry, indexes: IndexSpecification[]): string | null {
  const found = new Map(indexes.map((index) => [indexName(index), index]))
  for (const known of entry.wanted.indexes) {
    const name = indexName(known)
    const existing = found.get(name)
    if (!existing || !sameFields(known, existing)) return name
    found.delete(name)
  }
  const [created = null] = found.keys()
  return created
}

function sameFields(one: RawFields, other: RawFields): boolean {
  return (
    one.length === other.length &&
    one.every(({ name, value }, at) => other[at]?.name === name && other[at]?.value.equals(value))
  )
}

function nameOf(database: string, collection: string): string {
  return collection === '' ? `database ${database}` : namespace(database, collection)
}
