import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import type { Pair } from './clusters.ts'

/** Faults of servers and of the network before them. Pauses between them are random, not waits for something to happen. */

export interface FaultyServers extends Pick<Pair, 'source' | 'destination'> {
  random: Random
  counts: { faults: number }
}

/** `count` stepdowns of one side's primary. */
export function stepDowns(side: 'source' | 'destination', count: number, betweenMS: number) {
  return async (run: FaultyServers): Promise<void> => {
    for (let fault = 0; fault < count; fault++) {
      await sleep(run.random.int(0, betweenMS))
      await stepDown(run[side])
      run.counts.faults += 1
    }
  }
}

/** On a busy machine secondaries may not catch up in the time the primary gives them; then nothing has happened yet. */
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

/** Cuts every connection of one side through its proxy, or lets them hang, for `lastingMS`. */
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
