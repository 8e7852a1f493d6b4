/** The oplog should cover at least this many seconds, so that a pause or an outage of that length is possible. */
export const oplogWindowMinSeconds = 3_600
const hour = 3_600

/** Describes how long tandem can stop before the oplog no longer has its position, in the wording of mongosync. */
export function describeOplogTime(seconds: number): string {
  if (seconds > 72 * hour) return 'more than 72 hours'
  if (seconds < hour / 4) return 'less than 15 minutes'
  if (seconds < hour) return `${Math.floor(seconds / 60)} minutes`
  const hours = Math.floor(seconds / hour)
  return hours === 1 ? '1 hour' : `${hours} hours`
}
