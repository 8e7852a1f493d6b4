import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import type { LinkOptions } from '../support/tcp-proxy.ts'
import type { FaultyServers } from './server-faults.ts'

/** Changes of the links between tandem and the clusters, whose proxies must be variable. All members of a set share a link's values. */

const sides = ['source', 'destination'] as const

const roundTripMaxMS = 150
/** Bandwidth of each direction. 1,000 Mbit/s is more than a test's workload and its verification use. */
const megabitsMin = 100
const megabitsMax = 1_000
const bytesPerMegabit = 1e6 / 8
const unlimitedChance = 0.4
const betweenMinMS = 100
const betweenMaxMS = 2_500

/** Round trip 0 to 150 ms; bandwidth unlimited, or 100 to 1,000 Mbit/s, low values as often as high ones on a logarithmic scale. */
export function randomLink(random: Random): LinkOptions {
  const delayMS = random.int(0, roundTripMaxMS) / 2
  const megabits = megabitsMin * (megabitsMax / megabitsMin) ** random.fraction()
  return random.chance(unlimitedChance) ? { delayMS } : { delayMS, bytesPerSecond: megabits * bytesPerMegabit }
}

/** Changes the link of one side or of both at random moments until `over` is aborted. Both links are fast again at the end. */
export async function changeLinks({ random, counts, ...servers }: FaultyServers, over: AbortSignal): Promise<void> {
  try {
    while (!over.aborted) {
      const changed = random.chance(0.5) ? sides : [random.pick(sides)]
      for (const side of changed) setLinks(servers[side].proxies, randomLink(random))
      counts.faults += 1
      await sleep(random.int(betweenMinMS, betweenMaxMS), undefined, { signal: over }).catch(() => {})
    }
  } finally {
    for (const side of sides) setLinks(servers[side].proxies, {})
  }
}

function setLinks(proxies: FaultyServers['source']['proxies'], link: LinkOptions): void {
  for (const proxy of proxies) proxy.setLink(link)
}
