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

/** What `config.collections` stores about one sharded collection, apart from its key. */
interface Settings {
  /** The balancer leaves the collection alone (`sh.disableBalancing`). */
  noBalance: boolean
  /** Chunks may move. The command `setAllowMigrations` stores it as `permitMigrations`. */
  permitsMigrations: boolean
  /** The values of the shard key are unique. */
  unique: boolean
}

const defaults: Settings = { noBalance: false, permitsMigrations: true, unique: false }

export interface BalancingReports {
  /** Called for each collection whose setting was not stored, or once for all if they could not be read. */
  refused: (namespace: string, error: string) => void
  /** Called for each collection whose shard key is unique on the source only. No command changes that. */
  notUnique: (namespace: string) => void
}

/**
 * Gives sharded collections the source's settings of the balancer, and compares whether their keys are unique.
 *
 * No command of 6.0 sets `noBalance`: the shell, too, writes it into `config.collections`
 * (https://www.mongodb.com/docs/manual/tutorial/manage-sharded-cluster-balancer/#disable-balancing-on-a-collection).
 * `permitMigrations` is set by `setAllowMigrations`, for which the user needs the action moveChunk
 * (src/mongo/s/commands/cluster_set_allow_migrations_cmd.cpp in the server's source).
 *
 * Repeatable. Writers may have been stopped, and the settings can also be made after the commit, so this is one attempt
 * of limited time: what fails is reported and does not fail or delay the commit.
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
  for (const { database, name, sourceName, destinationUUID } of sharded) {
    const _id = namespace(database, name)
    const want = wanted.get(namespace(database, sourceName)) ?? defaults
    const have = existing.get(_id) ?? defaults
    // A delayed update does not reach a collection that was created again under this name.
    const q = { _id, uuid: toUuid(destinationUUID ?? '') }
    if (want.noBalance !== have.noBalance) updates.push({ q, u: { $set: { noBalance: want.noBalance } } })
    if (want.unique && !have.unique) notUnique(_id)
    if (want.permitsMigrations !== have.permitsMigrations) migrations.push({ _id, allowed: want.permitsMigrations })
  }
  await permitMigrations(destination, migrations, refused)
  for (let from = 0; from < updates.length; from += updatesMax) {
    const some = updates.slice(from, from + updatesMax)
    for (const [at, error] of await errorsOf(destination, some)) refused(some[at]?.['q']._id ?? '', error)
  }
}

/** Updates per command. The server accepts up to 100,000. */
const updatesMax = 1_000
const timeoutMS = 10_000
/** Commands that change whether the chunks of a collection may move, in parallel. */
const migrationsAtOnce = 8

/** The settings of the collections that have others than the default ones, by namespace. */
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
      return [stringOf(fieldNamed(fields, '_id')) ?? '', settings]
    }),
  )
}

/**
 * One command for each collection, until one of them fails in a way that would let others fail too, or until
 * `timeoutMS` has passed, because users may be waiting. The command names no UUID, and a delayed one is corrected by
 * the next commit. So it is not awaited when its outcome is unknown (`unfenced`).
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
