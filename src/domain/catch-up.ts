/** A lag of one second is normal when idle: lag has whole seconds, and it follows the no-op writes on the source. */
export const idleLagSeconds = 1

/**
 * Seconds until the lag of change event application is gone. Returns null when there is nothing to catch up with, and
 * when the lag does not become smaller.
 * @param lagSeconds null while the lag is unknown
 * @param appliedPerSecond seconds of the source's time that are applied per second; null before it is known
 */
export function estimateCatchUp(lagSeconds: number | null, appliedPerSecond: number | null): number | null {
  if (lagSeconds === null || appliedPerSecond === null) return null
  // Meanwhile the source's own time advances by one second per second.
  const gained = appliedPerSecond - 1
  if (lagSeconds <= idleLagSeconds || gained <= 0) return null
  return Math.ceil(lagSeconds / gained)
}
