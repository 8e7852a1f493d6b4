/**
 * A proxy in front of one server that delays every byte by half a round trip in each direction. It runs in its own process,
 * so that other work of the bench does not delay bytes that are due. It reports its port and runs until it is stopped.
 */
import { startProxy } from '../test/support/tcp-proxy.ts'
import { serveParent } from './child-work.ts'

export interface DelayingProxyInput {
  targetPort: number
  roundTripMS: number
}

await serveParent(async ({ targetPort, roundTripMS }: DelayingProxyInput) => {
  const proxy = await startProxy('127.0.0.1', targetPort, { delayMS: roundTripMS / 2 })
  return async () => ({ port: proxy.port })
})
