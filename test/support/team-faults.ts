import { setTimeout as sleep } from 'node:timers/promises'
import type { RunningTeam } from './running-team.ts'
import type { TcpProxy } from './tcp-proxy.ts'
import type { TeamFault } from './team-scenario.ts'

/** Faults of single instances. Pauses between them are random, not waits for something to happen. */

/** How long a stopped or cut-off instance is away: beyond its lease. */
export interface Away {
  awayMS: number
}

/** Kills somebody, or the coordinator, `count` times; each is started again, but the last one only if `again`. */
export function kill(whom: 'anybody' | 'the coordinator', count: number, again: boolean): TeamFault {
  return {
    name: `kill -9 of ${whom}${again ? '' : ', who never comes back'}`,
    during: async (team) => {
      for (let one = 0; one < count; one++) {
        await sleep(team.random.int(0, 2_500))
        const id = whom === 'anybody' ? team.random.pick(team.ids) : await team.coordinator()
        await team.kill(id)
        if (one === count - 1 && !again) return await goneFor(team, id)
        await comeBack(team, id)
      }
    },
  }
}

/** A dead one is started again: also later than its lease lasts, when others have what it had. */
export async function comeBack(team: RunningTeam, id: string): Promise<void> {
  await sleep(team.random.chance(0.3) ? team.random.int(10_000, 13_000) : team.random.int(0, 3_000))
  await team.startAgain(id)
}

/** A process that is stopped and goes on when others have taken over does no harm, and takes part again. */
export function stop(whom: 'anybody' | 'the coordinator', { awayMS }: Away): TeamFault {
  return {
    name: `SIGSTOP of ${whom}`,
    during: async (team) => {
      await sleep(team.random.int(0, 3_000))
      const id = whom === 'anybody' ? team.random.pick(team.ids) : await team.coordinator()
      team.signalProcess(id, 'SIGSTOP')
      await sleep(awayMS)
      team.signalProcess(id, 'SIGCONT')
    },
  }
}

/** Instances come, and go again in order, while the sync runs. */
export function joinAndLeave(): TeamFault {
  return {
    name: 'joining and leaving',
    during: async (team) => {
      await sleep(team.random.int(0, 2_000))
      await join(team, 'x')
      await sleep(team.random.int(0, 3_000))
      await team.leave(team.random.pick(team.ids))
      await sleep(team.random.int(0, 2_000))
      await join(team, 'y')
      await sleep(team.random.int(0, 3_000))
      await team.leave(await team.coordinator())
    },
  }
}

async function join(team: RunningTeam, id: string): Promise<void> {
  await team.start(id)
  await team.begin(id)
}

/** The network of one instance alone is cut, or swallows everything. */
export function cut(how: Victim['how'], { awayMS }: Away): TeamFault {
  let during = async (): Promise<void> => {}
  return {
    name: `network of one instance ${how}`,
    prepare: async (team, ids) => {
      const { proxies, uris } = await team.ownProxies()
      const [victim = ''] = ids
      await Promise.all(ids.map((id) => team.start(id, id === victim ? uris : {})))
      await team.begin(...ids)
      during = () => cutOff(team, { id: victim, proxies, how }, awayMS)
    },
    during: () => during(),
  }
}

/** An instance, and the proxies between it and the clusters. */
export interface Victim {
  id: string
  proxies: readonly TcpProxy[]
  how: 'refused' | 'swallowed'
}

export async function cutOff(team: RunningTeam, { id, proxies, how }: Victim, awayMS: number): Promise<void> {
  await sleep(team.random.int(0, 3_000))
  team.unreachable.add(id)
  team.died(id, `network ${how}`)
  if (how === 'refused') await Promise.all(proxies.map((proxy) => proxy.cut()))
  else for (const proxy of proxies) proxy.blackhole()
  await sleep(awayMS)
  for (const proxy of proxies) await proxy.heal()
  team.note(`${id} is back`)
  team.unreachable.delete(id)
}

/** Steps that a coordinator dies at while definitions change. */
export const barrierSteps = ['barrier', 'barrierDone'] as const
/** Steps of a commit. */
export const commitSteps = [
  ...['blockSource', 'commitPoint', 'audit', 'capped', 'prepareIndexes', 'verify', 'reversePosition', 'verdict'],
  ...['restoreExpiry', 'unblock', 'finishIndexes'],
] as const

/** The coordinator dies at a step, as by kill -9, and comes back or does not. */
export function coordinatorDies(step: string, again: boolean): TeamFault {
  const dies = async (team: RunningTeam): Promise<void> => {
    if (!(await team.awaitEnd('a', 90))) throw new Error(`the coordinator never came to ${step}`)
    if (!again) return await goneFor(team, 'a')
    await sleep(team.random.int(0, 4_000))
    await team.startAgain('a')
  }
  const atBarrier = (barrierSteps as readonly string[]).includes(step)
  return {
    name: `coordinator killed at ${step}${again ? '' : ', who never comes back'}`,
    firstFaults: { crashAt: step },
    start: { enableUserWriteBlocking: 'sourceAndDestination' },
    ...(atBarrier ? { during: dies } : { atCommit: dies }),
  }
}

/** One instance is paused while others run, and resumed. Changes of definitions wait for it meanwhile. */
export function pauseOne(): TeamFault {
  return {
    name: 'pause of one instance',
    during: async (team) => {
      await sleep(team.random.int(0, 2_000))
      const id = team.random.pick(team.ids)
      await team.command(id, 'pause')
      await sleep(team.random.int(1_000, 5_000))
      await team.command(id, 'resume')
    },
  }
}

/** It counts as lost only when it has not been heard of for the length of a lease. */
async function goneFor(team: RunningTeam, id: string): Promise<void> {
  if (team.ids.length === 0) throw new Error(`${id} was the last`)
  await sleep(11_000)
}
