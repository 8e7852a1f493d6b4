import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { both } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'
import { toUuid } from '../mongo/uuid.ts'

/**
 * Copies the source's `noBalance` setting to the sharded collections of the destination. `sh.disableBalancing` sets it,
 * and the balancer then leaves the collection alone. 6.0 has no command for it, so the shell, too, writes it into
 * `config.collections`
 * (https://www.mongodb.com/docs/manual/tutorial/manage-sharded-cluster-balancer/#disable-balancing-on-a-collection).
 * Repeatable. A commit calls this, possibly after writes to the source have stopped, so it tries only once and with a
 * time limit. A failure is reported and does not fail the commit, because you can set `noBalance` after the commit.
 * @param refused called for each collection whose setting was not stored, or once for all if they could not be read
 */
export async function copyBalancing(
  source: Cluster,
  destination: Cluster,
  entries: readonly CatalogEntry[],
  refused: (namespace: string, error: string) => void,
): Promise<void> {
  const sharded = entries.filter(({ shardKey }) => shardKey)
  if (!source.sharded || !destination.sharded || sharded.length === 0) return
  let read: [Set<string>, Set<string>]
  try {
    read = await both(readUnbalanced(source), readUnbalanced(destination))
  } catch (error) {
    return refused('all collections', errorText(error))
  }
  const [wanted, existing] = read
  const differing = sharded.flatMap(({ database, name, sourceName, destinationUUID }) => {
    const noBalance = wanted.has(namespace(database, sourceName))
    const _id = namespace(database, name)
    // A delayed update does not reach a collection that was created again under this name.
    const q = { _id, uuid: toUuid(destinationUUID ?? '') }
    return existing.has(_id) === noBalance ? [] : [{ q, u: { $set: { noBalance } } }]
  })
  for (let from = 0; from < differing.length; from += updatesMax) {
    const updates = differing.slice(from, from + updatesMax)
    for (const [at, error] of await errorsOf(destination, updates)) refused(updates[at]?.q._id ?? '', error)
  }
}

/** Updates per command. The server accepts up to 100,000. */
const updatesMax = 1_000
const timeoutMS = 10_000

/** The names of the collections that the balancer leaves alone. */
async function readUnbalanced(cluster: Cluster): Promise<Set<string>> {
  const found = await readConfig(cluster, 'collections', { noBalance: true })
  return new Set(found.map((bytes) => stringOf(fieldNamed(readFields(bytes), '_id')) ?? ''))
}

/**
 * Runs these updates and returns the errors of those that failed, by their positions. A delayed update does no harm, so
 * no fence is needed.
 */
async function errorsOf(destination: Cluster, updates: Document[]): Promise<Map<number, string>> {
  try {
    const command = { update: 'collections', updates, ordered: false }
    const { writeErrors } = await destination.write('config', command, { unfenced: true, timeoutMS })
    return new Map(((writeErrors ?? []) as WriteError[]).map(({ index, errmsg }) => [index, errmsg]))
  } catch (error) {
    return new Map(updates.map((_, index) => [index, errorText(error)]))
  }
}

interface WriteError {
  index: number
  errmsg: string
}
