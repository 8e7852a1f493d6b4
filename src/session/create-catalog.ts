import { type CommitParts, databasesAtOnce } from '../commit/finish-commit.ts'
import type { Creation } from '../definitions/reconcile-definitions.ts'
import { takeOverExisting } from '../definitions/take-over-existing.ts'
import { all, inParallel } from '../domain/in-parallel.ts'
import { stopBalancer } from '../mongo/balancer.ts'
import type { Metadata, SyncRecord } from '../mongo/metadata.ts'
import { retry } from '../mongo/retry.ts'

/** Reads of the source that a coordinator begins before it has loaded the stored state. */
export interface ReadAhead extends Pick<Creation, 'election'> {
  /** The databases with selected namespaces. */
  listed: Promise<string[]>
}

interface CreateCatalogParts {
  commit: CommitParts
  metadata: Metadata
  record: SyncRecord
  blockDestination: () => Promise<void>
  /** Updates the catalog with the current names of the collections on the destination. */
  correctNames: () => Promise<void>
}

/**
 * Blocks the destination, creates every collection with its options deferred, and stores the first positions.
 * @param ahead the reads of the source that began while the stored state was loaded
 * @param current rejects if the sync was reversed; nothing is written before it resolves
 */
export async function createCatalog(
  parts: CreateCatalogParts,
  { listed, election }: ReadAhead,
  current: Promise<void>,
): Promise<void> {
  const { metadata, record } = parts
  const position = { kind: 'time', time: record.startTime } as const
  const prepared = prepareCreation(parts, current)
  await all([
    prepared,
    createAll(parts, listed, { election, prepared }),
    current.then(() => metadata.beginPartitions(record.partitions, position)),
  ])
}

async function prepareCreation(parts: CreateCatalogParts, current: Promise<void>): Promise<void> {
  const { commit, metadata } = parts
  const { destination, context } = commit
  await all([
    parts.blockDestination(),
    current.then(() => metadata.createIndexes()),
    // A coordinator that crashed may have created collections and renamed them, as the source did, without storing the
    // new names.
    current.then(() => parts.correctNames()),
  ])
  await retry('stopping the balancer', context, () => stopBalancer(destination, metadata, context))
}

async function createAll(
  { commit, metadata, record }: CreateCatalogParts,
  listed: Promise<string[]>,
  creation: Creation,
): Promise<void> {
  const { catalog, definitions } = commit
  // The catalog may have collections of other databases. Their names may be corrected meanwhile, but a collection never
  // changes its database.
  const databases = new Set([...(await listed), ...catalog.databases()])
  if (record.configuration.existingData === 'converge') {
    const shardingEntries = record.configuration.sharding?.shardingEntries ?? []
    await creation.prepared
    await takeOverExisting({ ...commit, metadata, shardingEntries })
  }
  // `election` is used only for the databases that are read first. For every other database, the current election is
  // read again. Otherwise an election since the start would fail the read of that database.
  const first = new Set([...databases].slice(0, databasesAtOnce))
  await inParallel(databasesAtOnce, [...databases], async (database) => {
    const ahead = first.has(database) ? creation : { ...creation, election: undefined }
    await definitions.reconcile(database, 'all', 'copying', false, ahead)
  })
}
