import type { Peers } from '../coordination/peers.ts'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

export interface ReversePositionParts {
  destination: Cluster
  metadata: Metadata
  team: Pick<Peers, 'load' | 'report'>
  context: RetryContext
  /** The coordinator's tenure. */
  epoch: () => number
}

/**
 * Where a reversed stream will begin: a majority oplog note on the destination, taken and stored before the verifier's
 * last look, while user writes are still blocked. So whatever changes there unseen by that look comes after it.
 *
 * Every attempt to commit takes it anew, for the oplog of the destination may no longer reach back to the first one's. But
 * once a commit is decided (`writesHeld` becomes false with the decision) users may have written, and what they wrote must come
 * after it: then it stays for good. Beginning earlier than needed only makes equal what is equal.
 */
export class ReversePosition {
  readonly #parts: ReversePositionParts
  constructor(parts: ReversePositionParts) {
    this.#parts = parts
  }

  async take(): Promise<void> {
    const { destination, metadata, team, context, epoch } = this.#parts
    // One that an earlier version has taken says nothing of what it allowed afterwards.
    if (await metadata.loadPosition('reverse')) {
      if (!(await team.load()).context.writesHeld) return
    } else if (!(await team.report({ type: 'reversal.noted' })).context.writesHeld) {
      // The commit was aborted meanwhile: a position that was not noted first would stay for good.
      throw new StoppedError()
    }
    await retry('noting where a reversal would begin', context, () => appendOplogNote(destination, 'writes allowed'))
    await metadata.savePosition('reverse', epoch(), { kind: 'time', time: destination.latest })
  }
}
