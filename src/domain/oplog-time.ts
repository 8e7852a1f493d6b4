/** The oplog should cover a pause or an outage of this many seconds. */
export const oplogWindowMinSeconds = 3_600
const hour = 3_600

/** How long a reader could stop before the oplog overwrites its position, in mongosync's words. */
export function describeOplogTime(seconds: number): string {
  if (seconds > 72 * hour) return 'more than 72 hours'
  if (seconds < hour / 4) return 'less than 15 minutes'
  if (seconds < hour) return `${Math.floor(seconds / 60)} minutes`
  const hours = Math.floor(seconds / hour)
  return hours === 1 ? '1 hour' : `${hours} hours`
}
