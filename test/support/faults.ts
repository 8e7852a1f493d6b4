import { setTimeout as sleep } from 'node:timers/promises'
import type { ReplicaSet } from './replica-set.ts'
import type { RunningScenario } from './scenario.ts'

/** What faults of servers ask of whoever runs them. */
export type FaultyServers = Pick<RunningScenario, 'source' | 'destination' | 'random'> & { counts: { faults: number } }

/** Faults for scenarios. Pauses between them are random, not waits for something to happen. */

/** Kills and restarts at `count` random moments, spread over copy and application. */
export function kills(count: number, betweenMS: number) {
  return async (run: RunningScenario): Promise<void> => {
    for (let kill = 0; kill < count; kill++) {
      await sleep(run.random.int(0, betweenMS))
      await run.killAndRestart()
    }
  }
}

/** Stepdowns of one side's primary, until the workload is done but at least `count`. */
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
