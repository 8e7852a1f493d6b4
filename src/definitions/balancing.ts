import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { both } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'
import { codeOf, isTransient } from '../mongo/errors.ts'
import { toUuid } from '../mongo/uuid.ts'

/**
 * Gives sharded collections the source's `noBalance`, with which `sh.disableBalancing` makes the balancer leave a
 * collection alone. No command of 6.0 sets it: the shell, too, writes it into `config.collections`
 * (https://www.mongodb.com/docs/manual/tutorial/manage-sharded-cluster-balancer/#disable-balancing-on-a-collection).
 * Repeatable.
 * @param refused called for each collection whose setting the destination refuses
 */
export async function copyBalancing(
  source: Cluster,
  destination: Cluster,
  entries: readonly CatalogEntry[],
  refused: (namespace: string, error: string) => void,
): Promise<void> {
  const sharded = entries.filter(({ shardKey }) => shardKey)
  if (!source.sharded || !destination.sharded || sharded.length === 0) return
  const [wanted, existing] = await both(readUnbalanced(source), readUnbalanced(destination))
  for (const entry of sharded) {
    const noBalance = wanted.has(namespace(entry.database, entry.sourceName))
    const name = namespace(entry.database, entry.name)
    if (existing.has(name) === noBalance) continue
    // A delayed update does not reach a collection that was created again under this name.
    const q = { _id: name, uuid: toUuid(entry.destinationUUID ?? '') }
    const error = await refusalOf(destination, { update: 'collections', updates: [{ q, u: { $set: { noBalance } } }] })
    if (error !== null) refused(name, error)
  }
}

/** The names of the collections that the balancer leaves alone. */
async function readUnbalanced(cluster: Cluster): Promise<Set<string>> {
  const found = await readConfig(cluster, 'collections', { noBalance: true })
  return new Set(found.map((bytes) => stringOf(fieldNamed(readFields(bytes), '_id')) ?? ''))
}

/** Why the server does not perform the update; null if it does. Rejects with transient errors. */
async function refusalOf(destination: Cluster, update: Document): Promise<string | null> {
  try {
    const { writeErrors } = await destination.write('config', update)
    return (writeErrors as { errmsg: string }[] | undefined)?.[0]?.errmsg ?? null
  } catch (error) {
    if (codeOf(error) === undefined || isTransient(error)) throw error
    return errorText(error)
  }
}
