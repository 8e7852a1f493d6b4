/**
 * A proxy in front of one server that delays every byte by half a round trip in each direction. It is a process of its own,
 * so that bytes that are due do not wait for other work of the bench. It runs until it is stopped, and answers with its port.
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
