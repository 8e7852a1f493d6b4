import { RefusedError } from './errors.ts'
import { isUserDatabase } from './namespace.ts'
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
  for (const [at, { from, to }] of given.entries()) {
    refuseName(`namespaceRemap[${at}].from.database`, from.database)
    refuseName(`namespaceRemap[${at}].to.database`, to.database)
    const earlier = sources.get(from.database)
    if (earlier !== undefined)
      throw invalid(
        `namespaceRemap[${at}].from.database`,
        `${from.database} is renamed by namespaceRemap[${earlier}] already; give each database once`,
      )
    // The server accepts no two databases whose names differ only in case.
    const taken = targets.get(to.database.toLowerCase())
    if (taken !== undefined)
      throw invalid(
        `namespaceRemap[${at}].to.database`,
        `${to.database} is the target of namespaceRemap[${taken}] already (upper and lower case do not count); give each database another name on the destination`,
      )
    if (from.database === to.database)
      throw invalid(
        `namespaceRemap[${at}].to.database`,
        `${to.database} is the name on the source; leave the element out, or give another name`,
      )
    sources.set(from.database, at)
    targets.set(to.database.toLowerCase(), at)
  }
  return given
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
