/**
 * A lag of one second is normal on an idle source: the lag is measured in whole seconds and follows the source's no-op
 * writes.
 */
export const idleLagSeconds = 1

/**
 * Estimates the seconds until change event application has caught up. Returns null if it is not behind, if the lag does
 * not become smaller, or if the lag or the rate is unknown.
 * @param lagSeconds null while the lag is unknown
 * @param appliedPerSecond how many seconds of source changes are applied per second; null before it is known
 */
export function estimateCatchUp(lagSeconds: number | null, appliedPerSecond: number | null): number | null {
  if (lagSeconds === null || appliedPerSecond === null) return null
  // Meanwhile the source's own time advances by one second per second.
  const gained = appliedPerSecond - 1
  if (lagSeconds <= idleLagSeconds || gained <= 0) return null
  return Math.ceil(lagSeconds / gained)
}
