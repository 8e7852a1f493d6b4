/** Database of tandem's metadata, on the destination. Never synced. */
export const metadataDatabase = 'tandem_internal'

const internalDatabases = new Set(['admin', 'local', 'config', metadataDatabase])

export function isUserDatabase(database: string): boolean {
  return !internalDatabases.has(database)
}

/** The databases whose events the change stream filters out on the server. */
export const internalDatabaseNames: readonly string[] = [...internalDatabases]

/** `system.` collections hold the server's internal data (views, profile, JavaScript, time-series buckets). */
export function isUserCollection(collection: string): boolean {
  return !collection.startsWith('system.')
}

export function namespace(database: string, collection: string): string {
  return `${database}.${collection}`
}

/** A database's name has no dot; a collection's may. */
export function splitNamespace(name: string): { database: string; collection: string } {
  const dot = name.indexOf('.')
  return { database: name.slice(0, dot), collection: name.slice(dot + 1) }
}
