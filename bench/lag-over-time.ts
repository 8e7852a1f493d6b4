import type { SentinelResult } from './sentinel.ts'

/** A lag below this counts as caught up. */
const caughtUpMS = 1_000

/**
 * Returns the seconds from a moment, in milliseconds since the epoch, until the lag is below a second. The lag at the moment
 * is the age of the oldest change that has not arrived. If it is a second or more, it ends when a change arrives less than a
 * second after it was sent. If no change does so, the result is the time until the last one arrives.
 */
export function secondsUntilCaughtUp({ sentAtMS, lagsMS }: SentinelResult, from: number): number {
  const outstanding = sentAtMS
    .map((sentAt, index) => ({ sentAt, lag: lagsMS[index] as number }))
    .filter(({ sentAt, lag }) => sentAt + lag > from)
  const oldest = outstanding[0]
  if (!oldest || from - oldest.sentAt < caughtUpMS) return 0
  const end = outstanding.find(({ lag }) => lag < caughtUpMS) ?? (outstanding.at(-1) as typeof oldest)
  return (end.sentAt + end.lag - from) / 1_000
}
