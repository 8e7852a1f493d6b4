import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import type { Pair } from './clusters.ts'

/** Faults of servers and of the network in front of them. The delays between them are random; they do not wait for a condition. */

export interface FaultyServers extends Pick<Pair, 'source' | 'destination'> {
  random: Random
  counts: { faults: number }
}

/** Steps one side's primary down `count` times. */
export function stepDowns(side: 'source' | 'destination', count: number, betweenMS: number) {
  return async (run: FaultyServers): Promise<void> => {
    for (let fault = 0; fault < count; fault++) {
      await sleep(run.random.int(0, betweenMS))
      await stepDown(run[side])
      run.counts.faults += 1
    }
  }
}

/**
 * Steps the primary down. Repeats the attempt if the secondaries do not catch up in the time that the primary gives
 * them, which may happen on a busy machine. A failed attempt changes nothing.
 */
async function stepDown(set: ReplicaSet): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await set.stepDown()
      return
    } catch (error) {
      if (attempt >= 10 || !String(error).includes('No electable secondaries')) throw error
    }
  }
}

/** Cuts the connections through each proxy of one side, or lets them hang, for up to `lastingMS`. */
export function cuts(side: 'source' | 'destination', count: number, betweenMS: number, lastingMS: number) {
  return async (run: FaultyServers): Promise<void> => {
    for (let fault = 0; fault < count; fault++) {
      await sleep(run.random.int(0, betweenMS))
      for (const proxy of run[side].proxies) {
        if (run.random.chance(0.5)) await proxy.cut()
        else proxy.blackhole()
      }
      await sleep(run.random.int(1, lastingMS))
      for (const proxy of run[side].proxies) await proxy.heal()
      run.counts.faults += 1
    }
  }
}
