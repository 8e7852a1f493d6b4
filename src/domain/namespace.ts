/**
 * The database in which a new sync keeps its metadata, on its destination. The name has one of `internalPrefixes`, so
 * that MongoDB's tools ignore it.
 */
export const metadataDatabase = 'mongosync_internal_tandem'

/**
 * The database in which earlier releases kept the metadata of a sync. The metadata of a sync that such a release began
 * stays there until the sync is cleaned (`OlderMetadata`).
 */
export const olderMetadataDatabase = 'tandem_internal'

export const metadataDatabases: readonly string[] = [metadataDatabase, olderMetadataDatabase]

/** The name of a sync (`--syncName`). Appended to `metadataDatabase`, it fits into the 63 bytes of a database name. */
export const syncNamePattern = /^[A-Za-z0-9_-]{1,20}$/

/**
 * The databases that may contain the metadata of a sync.
 * @param syncName null for the sync without a name, which an earlier release may have begun
 */
export function databasesOfSync(syncName: string | null): readonly string[] {
  return syncName === null ? metadataDatabases : [`${metadataDatabase}_${syncName}`]
}

/** The name of the sync whose metadata this database contains; null for the sync without a name. */
export function syncNameOf(database: string): string | null {
  return metadataDatabases.includes(database) ? null : database.slice(metadataDatabase.length + 1)
}

/** Matches the metadata databases of all syncs. */
export const metadataDatabasePattern = `^(${olderMetadataDatabase}|${metadataDatabase}(_.*)?)$`

const internalDatabases = ['admin', 'local', 'config', ...metadataDatabases]

/**
 * Databases in which MongoDB's migration tools keep their metadata: mongosync (`__mdb_internal…`, and
 * `mongosync_reserved_…` in earlier releases) and migration-verifier, which ignores the same prefixes. tandem treats
 * these databases as internal on both clusters, so that these tools can run beside it. Its own database has such a name.
 */
const internalPrefixes = ['__mdb_internal', 'mongosync_internal_', 'mongosync_reserved_']

/** False for databases that are never synced, compared or counted, and that do not make a destination non-empty. */
export function isUserDatabase(database: string): boolean {
  return !internalDatabases.includes(database) && !internalPrefixes.some((prefix) => database.startsWith(prefix))
}

/**
 * The internal databases whose events tandem has the server exclude from a change stream. Databases with an internal
 * prefix are not in this list, because a pattern for the database name costs the server (6.0.27) about 40 µs for each
 * oplog entry that it reads.
 */
export const internalDatabaseNames: readonly string[] = internalDatabases

/** All internal databases, as values for `$nin` on a database's name. */
export const internalDatabasePatterns: readonly (string | RegExp)[] = [
  ...internalDatabases,
  ...internalPrefixes.map((prefix) => new RegExp(`^${prefix}`)),
]

/** `system.` collections hold the server's internal data (views, profile, JavaScript, time-series buckets). */
export function isUserCollection(collection: string): boolean {
  return !collection.startsWith('system.')
}

export function namespace(database: string, collection: string): string {
  return `${database}.${collection}`
}

export interface NamespaceName {
  database: string
  collection: string
}

/** Splits at the first dot: the name of a collection may contain dots, and the name of a database cannot. */
export function splitNamespace(name: string): NamespaceName {
  const dot = name.indexOf('.')
  return { database: name.slice(0, dot), collection: name.slice(dot + 1) }
}

/**
 * The largest number of bytes of a whole namespace (`NamespaceString` in the server's source). A sharded collection has
 * fewer, because its shards keep its chunks in a collection whose name contains the namespace.
 * https://www.mongodb.com/docs/manual/reference/limits/#mongodb-limit-Length-of-Namespaces
 */
export const namespaceBytesMax = 255
export const shardedNamespaceBytesMax = 235
