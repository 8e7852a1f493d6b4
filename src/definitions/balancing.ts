import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { both, inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, isTruthy, readFields, stringOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readConfig } from '../mongo/config-database.ts'
import { isTransient } from '../mongo/errors.ts'
import { toUuid } from '../mongo/uuid.ts'

/** The settings of one sharded collection in `config.collections`, apart from its key. */
interface Settings {
  /** True if the balancer does not move the collection's chunks (`sh.disableBalancing`). */
  noBalance: boolean
  /** True if chunks may move. The command `setAllowMigrations` stores this as `permitMigrations`. */
  permitsMigrations: boolean
  /** True if the values of the shard key are unique. */
  unique: boolean
}

const defaults: Settings = { noBalance: false, permitsMigrations: true, unique: false }

export interface BalancingReports {
  /** Called for each collection whose settings could not be set, or once for all if the settings could not be read. */
  refused: (namespace: string, error: string) => void
  /** Called for each collection whose shard key is unique on the source only. No command changes that. */
  notUnique: (namespace: string) => void
}

/**
 * Copies the source's balancer settings to the destination's sharded collections, and reports shard keys that are
 * unique on the source only.
 *
 * 6.0 has no command that sets `noBalance`. The shell, too, writes it into `config.collections`
 * (https://www.mongodb.com/docs/manual/tutorial/manage-sharded-cluster-balancer/#disable-balancing-on-a-collection).
 * `permitMigrations` is set by `setAllowMigrations`, for which the user needs the action moveChunk
 * (src/mongo/s/commands/cluster_set_allow_migrations_cmd.cpp in the server's source).
 *
 * This is repeatable. It makes one attempt of limited time, because users may be unable to write meanwhile, and the
 * settings can also be made after the commit. A failure is reported and does not fail the commit.
 */
export async function copyBalancing(
  source: Cluster,
  destination: Cluster,
  entries: readonly CatalogEntry[],
  { refused, notUnique }: BalancingReports,
): Promise<void> {
  const sharded = entries.filter(({ shardKey }) => shardKey)
  if (!source.sharded || !destination.sharded || sharded.length === 0) return
  let read: [Map<string, Settings>, Map<string, Settings>]
  try {
    read = await both(readSettings(source), readSettings(destination))
  } catch (error) {
    return refused('all collections', errorText(error))
  }
  const [wanted, existing] = read
  const updates: Document[] = []
  const migrations: { _id: string; allowed: boolean }[] = []
  const { names } = destination
  const failed = (_id: string, error: string): void => refused(names.shown(_id), error)
  for (const { database, name, sourceName, destinationUUID } of sharded) {
    const _id = namespace(database, name)
    const want = wanted.get(namespace(database, sourceName)) ?? defaults
    const have = existing.get(_id) ?? defaults
    // A delayed update does not reach a collection that was created again under this name.
    const q = { _id: names.namespaceOnDestination(_id), uuid: toUuid(destinationUUID ?? '') }
    if (want.noBalance !== have.noBalance) updates.push({ q, u: { $set: { noBalance: want.noBalance } } })
    if (want.unique && !have.unique) notUnique(names.shown(_id))
    if (want.permitsMigrations !== have.permitsMigrations) migrations.push({ _id, allowed: want.permitsMigrations })
  }
  await permitMigrations(destination, migrations, failed)
  for (let from = 0; from < updates.length; from += updatesMax) {
    const some = updates.slice(from, from + updatesMax)
    for (const [at, error] of await errorsOf(destination, some))
      failed(names.namespaceOnSource(some[at]?.['q']._id ?? ''), error)
  }
}

/** Number of updates in one command. The server accepts up to 100,000. */
const updatesMax = 1_000
const timeoutMS = 10_000
/** Number of `setAllowMigrations` commands that run in parallel. */
const migrationsAtOnce = 8

/** Returns the settings of the collections that do not have the default ones, by namespace. */
async function readSettings(cluster: Cluster): Promise<Map<string, Settings>> {
  const others = { $or: [{ noBalance: true }, { permitMigrations: false }, { unique: true }] }
  const found = (await readConfig(cluster, 'collections', others)).map((bytes) => readFields(bytes))
  return new Map(
    found.map((fields) => {
      const permitted = fieldNamed(fields, 'permitMigrations')
      const settings = {
        noBalance: isTruthy(fieldNamed(fields, 'noBalance')),
        permitsMigrations: permitted === undefined || isTruthy(permitted),
        unique: isTruthy(fieldNamed(fields, 'unique')),
      }
      return [cluster.names.namespaceOnSource(stringOf(fieldNamed(fields, '_id')) ?? ''), settings]
    }),
  )
}

/**
 * Runs one command for each collection. It stops after a transient error, because the next commands would fail too, and
 * after `timeoutMS`, because users may be waiting. The command cannot name a UUID. If a delayed command takes effect on
 * a collection that was created again, the next attempt of the commit compares the settings again and corrects it. So
 * tandem does not wait for a command of unknown outcome (`unfenced`).
 */
async function permitMigrations(
  destination: Cluster,
  migrations: readonly { _id: string; allowed: boolean }[],
  refused: BalancingReports['refused'],
): Promise<void> {
  const until = performance.now() + timeoutMS
  let ended: string | null = null
  await inParallel(migrationsAtOnce, [...migrations], async ({ _id, allowed }) => {
    const leftMS = until - performance.now()
    if (leftMS < 1) ended ??= `not set within ${timeoutMS / 1_000} seconds`
    if (ended !== null) return refused(_id, ended)
    try {
      destination.fence()
      const command = { setAllowMigrations: _id, allowMigrations: allowed }
      await destination.write('admin', command, { unfenced: true, timeoutMS: Math.ceil(leftMS) })
    } catch (error) {
      if (isTransient(error)) ended ??= errorText(error)
      refused(_id, errorText(error))
    }
  })
}

/**
 * Runs these updates and returns the errors of those that failed, by position. A delayed update does no harm, so the
 * updates need no fence.
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
