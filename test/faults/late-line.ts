import { setTimeout as sleep } from 'node:timers/promises'
import { startHoldingProxy } from '../support/holding-proxy.ts'
import { startProxy } from '../support/tcp-proxy.ts'

/**
 * More bytes than the driver's monitoring sends, so they are probably a write. Other lanes send their writes soon
 * afterwards.
 */
const writeBytes = 3_000
const patienceMS = 3_000
const otherLanesMS = 300

export interface LateLine {
  /** A direct connection string to the server behind the line. Discovery would bypass the line. */
  uri: string
  /** Holds back everything that is sent on the present connections. Resolves when this probably includes writes, or after 3 s without writes. */
  hold(): Promise<void>
  /** Ends all connections of the client. New connections work. */
  cut(): Promise<void>
  /** Delivers what was held back. Resolves when the server has executed it on the connections that the client has given up. */
  deliver(): Promise<void>
  close(): Promise<void>
}

/**
 * Starts a network that delivers messages late, including those that were sent on connections that the client considers closed:
 *
 *   client ── TCP proxy, which ends connections ── holding proxy, which has read what was sent before ── server
 */
export async function startLateLine(host: string): Promise<LateLine> {
  const [name = '', port = ''] = host.split(':')
  const holding = await startHoldingProxy(name, Number(port))
  const cutting = await startProxy('127.0.0.1', holding.port)
  return {
    uri: `mongodb://127.0.0.1:${cutting.port}/?directConnection=true`,
    hold: async () => {
      holding.hold()
      const until = performance.now() + patienceMS
      while (holding.heldBytes < writeBytes && performance.now() < until) await sleep(5)
      await sleep(otherLanesMS)
    },
    cut: async () => {
      await cutting.cut()
      await cutting.heal()
    },
    deliver: () => holding.deliver(),
    close: async () => {
      await cutting.close()
      await holding.close()
    },
  }
}
