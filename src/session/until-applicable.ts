import type { SyncSnapshot } from '../../machines/sync-view.ts'
import { areWritesBlocked, blocksDestination } from '../commit/write-blocking.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { SyncRecord } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { PreloadedState } from './preloaded-state.ts'

interface Parts {
  peers: Peers
  coordination: Coordination
  destination: Cluster
  record: SyncRecord
  context: RetryContext
  preloaded: PreloadedState
}

/**
 * Resolves when changes may be applied. Rejects with StoppedError if the commit is decided. Until then, if this
 * instance coordinates, it requests that an undecided commit is undone and started again (`commit.renewed`). If users
 * can already write on the destination, it reports that instead (`commit.foundOpen`).
 * @returns the state in which they may be applied
 * @param restarts true when this instance starts again. If it coordinates, a commit that has not yet applied all
 * changes then starts again too, because users may have written to the source while this instance was not running
 */
export async function untilApplicable(parts: Parts, restarts: boolean, signal: AbortSignal): Promise<SyncSnapshot> {
  const { peers, coordination, preloaded } = parts
  // A coordinator stores its term below before it relies on a state that was read ahead. That write has no effect if the
  // state has changed since it was read, so the age of the state does not matter.
  const storesTerm = peers.sync.context.term < coordination.term
  let isKnown = restarts && coordination.leading && preloaded.use(storesTerm)
  for (;;) {
    const sync = isKnown ? peers.sync : await peers.load()
    isKnown = false
    if (sync.hasTag('applicable') && !(restarts && coordination.leading)) return sync
    if (sync.hasTag('decided')) throw new StoppedError()
    if (coordination.leading) {
      const inTerm = await peers.elected()
      // If the state does not accept `commit.renewed` in this term, nothing has to be requested.
      const nothingToRequest =
        inTerm.context.term === coordination.term && !inTerm.can({ type: 'commit.renewed', ...peers.worked })
      if (nothingToRequest && inTerm.hasTag('applicable')) return inTerm
      const mayBeOpen = inTerm.context.mayBeOpen && (await isDestinationOpened(parts))
      const after = await peers.report({ type: mayBeOpen ? 'commit.foundOpen' : 'commit.renewed' })
      if (after.hasTag('applicable')) return after
    }
    await peers.wait(signal)
  }
}

async function isDestinationOpened({ destination, record, context }: Parts): Promise<boolean> {
  if (!blocksDestination(record.configuration)) return false
  const blocked = await retry('checking whether the destination is blocked', context, () =>
    areWritesBlocked(destination),
  )
  return blocked === false
}
