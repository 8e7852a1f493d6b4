import type { Cluster } from '../mongo/cluster.ts'
import type { Check } from './check.ts'

const skewMaxMS = 2_000

/**
 * Warns if the clocks of the source and the destination differ by more than `skewMaxMS`. tandem neither orders events
 * nor computes the lag by comparing these clocks, but TTL indexes use them.
 */
export const checkClocks: Check = async ({ source, destination }) => {
  const skew = Math.abs((await offsetOf(source)) - (await offsetOf(destination)))
  if (skew <= skewMaxMS) return []
  return [
    {
      severity: 'warning',
      name: 'ClockSkew',
      message: `the clocks of source and destination differ by ${(skew / 1_000).toFixed(1)} seconds`,
      remedy: 'synchronize both by NTP: otherwise documents expire at different times',
    },
  ]
}

/** Returns the offset of the server's clock from this machine's clock, in milliseconds. */
async function offsetOf(cluster: Cluster): Promise<number> {
  const before = Date.now()
  const { localTime } = await cluster.read('admin', { hello: 1 })
  return (localTime as Date).getTime() - (before + Date.now()) / 2
}
