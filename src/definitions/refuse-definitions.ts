import type { ChangeEvent } from '../domain/change-event.ts'
import { deferredOptionsOf, type IndexSpecification } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace, namespaceBytesMax, shardedNamespaceBytesMax } from '../domain/namespace.ts'
import { type NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import { notLost } from '../domain/not-lost.ts'
import {
  bsonType,
  embedded,
  fieldNamed,
  type RawFields,
  readFields,
  stringOf,
  type TypedValue,
} from '../domain/raw-bson.ts'
import type { ListedCollection } from './listing.ts'

/** Throws FatalError if one of the indexes is a TTL index, which the destination does not have with buildIndexes "never". */
export function refuseExpiry(database: string, name: string, indexes: IndexSpecification[]): void {
  if (!indexes.some((index) => deferredOptionsOf(index).expireAfterSeconds !== undefined)) return
  throw new FatalError(
    'VerificationNotSupported',
    `${namespace(database, name)} has a TTL index, which cannot be verified with buildIndexes "never": documents would expire ` +
      'on the source only. Drop that index and, if the sync was running, send resume. Or start over with "beforeDataCopy" or with ' +
      `"verification": {"enabled": false}, which a running sync cannot change. ${notLost.atStartOrLater}`,
  )
}

/**
 * Throws FatalError for collections that tandem cannot sync. Checked at start and whenever a collection appears later.
 * @param names the names that the destination gives the source's databases and collections
 */
export function refuseUnsupported(database: string, listed: ListedCollection[], names: NamespaceRemap = noRemap): void {
  for (const { name, type, options } of listed) {
    if (type === 'timeseries' || name.startsWith('system.buckets.')) {
      const plain = name.replace(/^system\.buckets\./, '')
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, plain)} is a time-series collection, which tandem cannot sync because change streams do not report its changes. Drop it on the source, exclude it by a filter, or leave all time-series collections out with "timeseries": "skip" at start; if the sync was running, drop or exclude it and send resume. ${notLost.atStartOrLater}`,
      )
    }
    if (fieldNamed(options, 'encryptedFields')) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} uses Queryable Encryption, which tandem cannot copy. Drop it on the source or exclude it by a filter; if the sync was running, then send resume. ${notLost.atStartOrLater}`,
      )
    }
    refuseLongName(names, namespace(database, name), false)
    if (type === 'view') refusePlaced(names, database, name, options)
  }
}

/**
 * Throws FatalError for a view that would read other collections on the destination than on the source, because
 * namespaceRemap renames a collection that it reads, or the view itself.
 */
function refusePlaced(names: NamespaceRemap, database: string, name: string, options: RawFields): void {
  if (!names.hasCollections) return
  const view = namespace(database, name)
  const remedy = `Drop it on the source or exclude it by a filter; if the sync was running, then send resume. ${notLost.atStartOrLater}`
  if (names.isPlaced(database, name))
    throw new FatalError(
      'UnsupportedCollection',
      `${view} is a view, and namespaceRemap gives it the name ${names.namespaceOnDestination(view)}. A view cannot be renamed, because it reads the collections of its own database. ${remedy}`,
    )
  const read = collectionsReadBy(options).find((one) => names.isPlaced(database, one))
  if (read === undefined) return
  throw new FatalError(
    'UnsupportedCollection',
    `${view} is a view that reads ${namespace(database, read)}, and namespaceRemap places that collection elsewhere on the destination (${names.namespaceOnDestination(namespace(database, read))}), ` +
      `where the view would read something else. ${remedy}`,
  )
}

/** The fields that name a collection of the same database: of $lookup and $graphLookup, and of $unionWith. */
const namingFields: ReadonlySet<string> = new Set(['from', 'coll', '$unionWith'])

/** Returns every collection that a view may read. A field with such a name counts wherever it is in the pipeline. */
function collectionsReadBy(options: RawFields): string[] {
  const within = (fields: RawFields): string[] =>
    fields.flatMap(({ name, value }) => {
      const text = stringOf(value)
      if (text !== undefined) return namingFields.has(name) ? [text] : []
      return isNested(value) ? within(readFields(embedded(value))) : []
    })
  const viewOn = stringOf(fieldNamed(options, 'viewOn'))
  return [...(viewOn === undefined ? [] : [viewOn]), ...within(options.filter(({ name }) => name === 'pipeline'))]
}

function isNested(value: TypedValue): boolean {
  return value[0] === bsonType.document || value[0] === bsonType.array
}

/** Throws FatalError if the destination does not accept a collection's namespace, because the name is longer there. */
export function refuseLongName(names: NamespaceRemap, name: string, sharded: boolean): void {
  const there = names.namespaceOnDestination(name)
  const bytes = Buffer.byteLength(there)
  const most = sharded ? shardedNamespaceBytesMax : namespaceBytesMax
  if (there === name || bytes <= most) return
  throw new FatalError(
    'UnsupportedCollection',
    `${name} would be ${there} on the destination, which has ${bytes} bytes, and the server accepts at most ${most}${sharded ? ' for a sharded collection' : ''}. ` +
      'Give the collection a shorter name on the source or exclude it by a filter, or start with a shorter name in namespaceRemap; ' +
      `if the sync was running, rename or exclude the collection and send resume. ${notLost.atStartOrLater}`,
  )
}

/** Returns the error for a change that is found after every event up to the commit timestamp was applied. */
export function changedAfterCommitPoint(database: string, name: string, how: 'created' | 'renamed'): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `${namespace(database, name)} was ${how} on the source after the commit timestamp, while the commit prepared the destination. Stop all writes on the source, ` +
      `then send resume. ${notLost.progress}`,
  )
}

/** Returns the error for an event of a kind that this release does not know and whose change it cannot follow. */
export function unknownKind({ operationType, database, collection }: ChangeEvent): FatalError {
  const where = collection === '' ? database : namespace(database, collection)
  return new FatalError(
    'UnsupportedChange',
    `the source's change stream has an event of an unknown kind, ${JSON.stringify(operationType)}` +
      `${where === '' ? '' : ` on ${where}`}. tandem cannot follow what it changed, so the sync stops before it. Use a release of ` +
      `tandem that knows this kind and send resume, or start over with "existingData": "converge", which begins after that event. ${notLost.source}`,
  )
}
