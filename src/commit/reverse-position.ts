import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

export interface ReversePositionParts {
  destination: Cluster
  metadata: Metadata
  peers: Pick<Peers, 'load' | 'report'>
  context: RetryContext
  /** Its epoch fences the write of the position: a former coordinator cannot store one. */
  coordination: Pick<Coordination, 'coordinatorEpoch'>
}

/**
 * The start position of a reversed stream: a majority-committed oplog no-op on the destination. It is written and
 * stored before the verifier's last comparison, while user writes are still blocked. Every change that this comparison
 * does not cover therefore comes after the position.
 *
 * Every commit attempt takes a new position, because the destination's oplog may no longer reach back to an earlier
 * one. When a commit is decided, `writesHeld` becomes false, and users may write from then on. Their writes must come
 * after the position, so it no longer changes. A position that is earlier than needed is harmless.
 */
export class ReversePosition {
  readonly #parts: ReversePositionParts
  constructor(parts: ReversePositionParts) {
    this.#parts = parts
  }

  async take(): Promise<void> {
    const { destination, metadata, peers, context, coordination } = this.#parts
    // The stored position may come from an earlier release. Only `writesHeld` shows that users have not written since.
    if (await metadata.loadPosition('reverse')) {
      if (!(await peers.load()).context.writesHeld) return
    } else if (!(await peers.report({ type: 'reversal.announced' })).context.writesHeld) {
      // The commit was aborted in the meantime. A position that was stored now could not be replaced later, because
      // `writesHeld` is false.
      throw new StoppedError()
    }
    await retry('storing the position from which a reversal would begin', context, () =>
      appendOplogNote(destination, 'writes allowed'),
    )
    await metadata.savePosition('reverse', coordination.coordinatorEpoch, { kind: 'time', time: destination.latest })
  }
}
