import { RefusedError } from './errors.ts'
import { isUserCollection, isUserDatabase, namespace } from './namespace.ts'
import { isConversion, isTemporary } from './namespace-filter.ts'
import type { NamespaceRename } from './start-request.ts'

/**
 * Checks `namespaceRemap` as far as the request alone allows. `refuseDisplaced` and `src/checks/namespace-remap.ts`
 * check what depends on the filters and the clusters. Null for an empty list, which renames nothing.
 * @throws RefusedError InvalidRequest that names the field
 */
export function parseRemap(given: readonly NamespaceRename[] | undefined): readonly NamespaceRename[] | null {
  if (!given || given.length === 0) return null
  const sources = new Map<string, number>()
  const targets = new Map<string, number>()
  const spellings = new Map<string, { database: string; at: number }>()
  for (const [at, { from, to }] of given.entries()) {
    const field = `namespaceRemap[${at}]`
    refuseName(`${field}.from.database`, from.database)
    refuseName(`${field}.to.database`, to.database)
    refuseHalf(field, from, to)
    if (from.collection !== undefined) refuseCollection(`${field}.from.collection`, from.collection)
    if (to.collection !== undefined) refuseCollection(`${field}.to.collection`, to.collection)
    const part = to.collection === undefined ? 'database' : 'collection'
    const earlier = sources.get(textOf(from))
    if (earlier !== undefined)
      throw invalid(
        `${field}.from.${part}`,
        `${textOf(from)} is renamed by namespaceRemap[${earlier}] already; give each ${part} once`,
      )
    // The server accepts no two databases whose names differ only in case.
    const target = to.collection === undefined ? to.database.toLowerCase() : textOf(to)
    const taken = targets.get(target)
    if (taken !== undefined)
      throw invalid(
        `${field}.to.${part}`,
        `${textOf(to)} is the target of namespaceRemap[${taken}] already${part === 'database' ? ' (upper and lower case do not count)' : ''}; give each ${part} another name on the destination`,
      )
    const other = spellings.get(to.database.toLowerCase())
    if (other && other.database !== to.database)
      throw invalid(
        `${field}.to.database`,
        `${to.database} differs only in case from ${other.database} of namespaceRemap[${other.at}], and the server accepts no two such databases; write both in the same way`,
      )
    if (textOf(from) === textOf(to))
      throw invalid(
        `${field}.to.${part}`,
        `${textOf(to)} is the name on the source; leave the element out, give another name, or exclude it by a filter`,
      )
    sources.set(textOf(from), at)
    targets.set(target, at)
    spellings.set(to.database.toLowerCase(), other ?? { database: to.database, at })
  }
  return given
}

type Named = NamespaceRename['from']

function textOf({ database, collection }: Named): string {
  return collection === undefined ? database : namespace(database, collection)
}

function refuseHalf(field: string, from: Named, to: Named): void {
  if ((from.collection === undefined) === (to.collection === undefined)) return
  throw invalid(
    `${field}.${from.collection === undefined ? 'from' : 'to'}.collection`,
    'an element renames a whole database or one collection; give collection in both from and to, or in neither',
  )
}

/** https://www.mongodb.com/docs/manual/reference/limits/#mongodb-limit-Restriction-on-Collection-Names */
const invalidCollection = /^\.|\.$|\.\.|[$\0]|\p{Surrogate}/u

function refuseCollection(field: string, collection: string): void {
  if (!isUserCollection(collection))
    throw invalid(field, `${collection} is internal to the server and never synced; leave it out`)
  if (isTemporary(collection) || isConversion(collection) || collection.startsWith('tandem.parked.'))
    throw invalid(field, `${collection} is a temporary name of the server or of tandem; give another name`)
  if (invalidCollection.test(collection))
    throw invalid(
      field,
      'the name of a collection contains no $ and no null character, no two dots in succession, and no dot at its beginning or end; give another name',
    )
}

/** https://www.mongodb.com/docs/manual/reference/limits/#mongodb-limit-Restrictions-on-Database-Names-for-Windows */
const invalidCharacters = /[/\\. "$*<>:|?\0]|\p{Surrogate}/u
/** The server refuses a name of 64 bytes. */
const bytesMax = 63

function refuseName(field: string, database: string): void {
  if (!isUserDatabase(database))
    throw invalid(field, `${database} is internal to the server or to a migration tool and never synced; leave it out`)
  if (Buffer.byteLength(database) > bytesMax)
    throw invalid(field, `the name of a database has at most ${bytesMax} bytes; give a shorter name`)
  if (invalidCharacters.test(database))
    throw invalid(
      field,
      'the name of a database contains none of /\\. "$*<>:|? and no null character; give another name',
    )
}

function invalid(field: string, text: string): RefusedError {
  return new RefusedError('InvalidRequest', `${field}: ${text}`)
}
