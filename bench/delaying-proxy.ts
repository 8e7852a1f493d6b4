/**
 * A proxy in front of one server that delays every byte by half a round trip in each direction, and limits the bandwidth
 * of each direction. It runs in its own process, so that other work of the bench does not delay bytes that are due. It
 * reports its port and runs until it is stopped.
 */
import { startProxy } from '../test/support/tcp-proxy.ts'
import { serveParent } from './child-work.ts'

/** The network between the clients of a measurement and each cluster. Values that are undefined are not simulated. */
export interface Link {
  roundTripMS?: number | undefined
  /** Bandwidth of each direction. */
  megabitsPerSecond?: number | undefined
  /** The `compressors` of the connection strings of all programs that use the link. */
  compressors?: string | undefined
}

export interface DelayingProxyInput {
  targetPort: number
  link: Link
}

const bytesPerMegabit = 1e6 / 8

await serveParent(async ({ targetPort, link: { roundTripMS = 0, megabitsPerSecond } }: DelayingProxyInput) => {
  const bytesPerSecond = megabitsPerSecond === undefined ? undefined : megabitsPerSecond * bytesPerMegabit
  const proxy = await startProxy('127.0.0.1', targetPort, { delayMS: roundTripMS / 2, bytesPerSecond })
  return async () => ({ port: proxy.port })
})
