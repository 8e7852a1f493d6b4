import { setTimeout as sleep } from 'node:timers/promises'
import { startHoldingProxy } from '../support/holding-proxy.ts'
import { startProxy } from '../support/tcp-proxy.ts'

/** More than monitoring sends: probably a write. The other lanes send theirs soon after. */
const writeBytes = 3_000
const patienceMS = 3_000
const otherLanesMS = 300

export interface LateLine {
  /** Of the server behind, alone: discovery would go round the line. */
  uri: string
  /** What is sent on the connections that exist now does not arrive. Resolves when some of it is probably writes, or nothing is written. */
  hold(): Promise<void>
  /** The client loses all its connections. New ones work. */
  cut(): Promise<void>
  /** What was held back arrives. Resolves when the server has carried it out on the connections that the client has given up. */
  deliver(): Promise<void>
  close(): Promise<void>
}

/**
 * A network that delivers late, also what was sent on connections that the client believes to be over:
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
