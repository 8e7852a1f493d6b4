import type { Cluster } from '../mongo/cluster.ts'
import { appendNote } from '../mongo/listing.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'

/**
 * Where a reversed stream will begin: a majority oplog note on the destination, taken and stored before the verifier's
 * last look, while user writes are still blocked. So whatever changes there unseen by that look comes after it.
 *
 * A commit that dies between here and `canWrite` comes by again and keeps the first position: from then on somebody may
 * have written, and beginning earlier than needed only makes equal what is equal.
 */
export async function keepReversePosition(
  destination: Cluster,
  metadata: Metadata,
  epoch: number,
  context: RetryContext,
): Promise<void> {
  if (await metadata.loadPosition('reverse')) return
  await retry('noting where a reversal would begin', context, () => appendNote(destination, 'writes allowed'))
  await metadata.savePosition('reverse', epoch, { kind: 'time', time: destination.latest })
}
