import { areWritesBlocked } from '../commit/write-blocking.ts'
import { listCollections, listDatabases } from '../definitions/listing.ts'
import { refuseUnsupported } from '../definitions/refuse-definitions.ts'
import { reshardingNow } from '../definitions/sharding.ts'
import { FatalError, RefusedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { refuseIrreversible } from '../domain/start-rules.ts'
import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { readFacts } from '../mongo/identity.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { Selection } from '../mongo/selection.ts'
import { eventsSince } from './events-since.ts'

/**
 * Time limit in milliseconds for the reads of the stored position and of the former source's oplog. If a cluster does not
 * answer them within this time, the reversal is refused.
 */
const patienceMS = 20_000

export interface ReversalToCheck {
  record: SyncRecord
  /** Source and destination before the reversal. */
  source: Cluster
  destination: Cluster
  context: RetryContext
}

/**
 * Checks every condition of a reversal. Writes only oplog no-ops. Throws RefusedError with the reason.
 *
 * The oplog of the former source must reach back to the commit, because only this oplog shows whether documents were
 * written there that exist on no other cluster. A convergence would delete these. If the oplog of the new source does not
 * reach back to the commit, or the position in that oplog is not known, the reversal is not refused. Instead,
 * `prepareDestination` requests that all collections are converged.
 */
export async function checkReverse({ record, source, destination, context }: ReversalToCheck): Promise<void> {
  const { configuration } = record
  refuseUnlessReversible(configuration)
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(patienceMS)])
  const limited: RetryContext = { ...context, signal }
  const facts = { source: await readFacts(source), destination: await readFacts(destination) }
  // A shard may have been added since the start, and the rules must also hold for the opposite direction.
  refuseIrreversible(configuration, facts.destination, facts.source)
  const selection = new Selection(destination, configuration, configuration.timeseries)
  for (const database of await listDatabases(destination)) {
    refuseUnsupported(database, await selection.among(database, await listCollections(destination, database)))
  }
  await refuseResharding(source, destination)
  const former = await new Metadata(destination, limited).loadPosition(0)
  if (!former) {
    throw new RefusedError(
      'WrongState',
      'another instance has reversed this sync, and the state of this instance is outdated. Restart this instance, then check its progress',
    )
  }
  await refusingLostOplog(configuration.source, () => refuseChanged(source, configuration.source, former, limited))
}

/**
 * Refuses a reversal while a collection is being resharded, because the resharding replaces the collection by one with
 * another UUID. On the former source, tandem would lose the collection that it writes. On the new source, it would have
 * to converge the collection right after the reversal. If a resharding begins on the new source later, tandem follows
 * it as in every sync.
 */
async function refuseResharding(source: Cluster, destination: Cluster): Promise<void> {
  const commands = 'reshardCollection, moveCollection or unshardCollection'
  const onNewSource = await reshardingNow(destination)
  if (onNewSource !== null) {
    throw new RefusedError(
      'UnsupportedCollection',
      `${onNewSource} on ${destination.name} is being resharded (${commands}), which rewrites all of its documents: wait until that has ended, then send reverse again`,
    )
  }
  const onFormerSource = await reshardingNow(source)
  if (onFormerSource === null) return
  throw new RefusedError(
    'UnsupportedCollection',
    `${onFormerSource} on ${source.name} is being resharded (${commands}), which would count as a change of the former source: stop that with abortReshardCollection, abortMoveCollection or abortUnshardCollection, then send reverse again`,
  )
}

function refuseUnlessReversible({ reversible, enableUserWriteBlocking }: SyncRecord['configuration']): void {
  if (!reversible) {
    throw new RefusedError('WrongState', 'this sync was not started with "reversible": true, so it cannot be reversed')
  }
  if (enableUserWriteBlocking !== 'sourceAndDestination') {
    throw new RefusedError(
      'WrongState',
      `this sync was started with "enableUserWriteBlocking": "${enableUserWriteBlocking}"; only one with ` +
        '"sourceAndDestination" can be reversed, because it blocks writes on the source after the commit',
    )
  }
}

/**
 * Refuses a reversal when the former source was written after the commit. These writes exist only there, so a reversal
 * would undo them or leave the clusters different.
 */
async function refuseChanged(
  cluster: Cluster,
  name: string,
  position: StreamPosition,
  context: RetryContext,
): Promise<void> {
  if ((await areWritesBlocked(cluster)) === false) {
    throw new RefusedError(
      'FormerSourceChanged',
      `${name} accepts user writes again; block them with {"setUserWriteBlockMode": 1, "global": true} and send reverse again`,
    )
  }
  for await (const events of eventsSince(cluster, position, context)) {
    // A delete is no reason to refuse: a document may have expired there while writes were enabled. The reversal copies
    // such a document back from the new source.
    const foreign = events.find((event) => event.kind !== 'delete')
    if (!foreign) continue
    throw new RefusedError(
      'FormerSourceChanged',
      `${namespace(foreign.database, foreign.collection)} on ${name} was changed after the commit (${foreign.operationType}), ` +
        'and that change exists on no other cluster. A reversal would undo it, so this sync cannot be reversed any more. Copy the change yourself if you need it. ' +
        `${newSyncRemedy}, which makes ${name} equal to that destination and writes only what differs`,
    )
  }
}

/** `start` is not accepted in COMMITTED, so the stored sync has to be removed first. */
const newSyncRemedy =
  'Stop all instances, remove this sync with tandem clean, start them again, and start a new sync from the destination of this sync with "existingData": "converge"'

async function refusingLostOplog(name: string, read: () => Promise<void>): Promise<void> {
  await read().catch((error) => {
    if (!(error instanceof FatalError) || error.failure !== 'OplogWindowLost') throw error
    throw new RefusedError(
      'OplogWindowLost',
      `the oplog of ${name} no longer reaches back to the commit, so it cannot be proved that nothing was written there since, and a reversal would delete such ` +
        'writes; this sync cannot be reversed any more. ' +
        `${newSyncRemedy}, which makes ${name} equal to that destination`,
      { cause: error },
    )
  })
}
