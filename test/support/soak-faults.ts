import { setTimeout as sleep } from 'node:timers/promises'
import { cuts, type FaultyServers, stepDowns } from './faults.ts'
import type { RunningTeam } from './running-team.ts'
import type { TcpProxy } from './tcp-proxy.ts'
import { comeBack, cutOff, pauseOne, stop } from './team-faults.ts'
import type { TeamFault } from './team-scenario.ts'

/** What a soak's faults happen to. */
export interface SoakTarget {
  team: RunningTeam
  servers: FaultyServers
  /** Is never killed, so that one process is as old as the run. */
  spared: string
  /** Of the one instance that has proxies of its own. */
  proxied: { id: string; proxies: readonly TcpProxy[] } | null
  /** `start` of the present direction. */
  start: Record<string, unknown>
}

type Fault = (target: SoakTarget) => Promise<void>

const awayMinMS = 500
/** Beyond a lease. */
const awayMaxMS = 14_000
/** Comes and goes. */
const guest = 'x'

const during =
  (fault: (awayMS: number) => TeamFault): Fault =>
  async ({ team }) =>
    await fault(team.random.int(awayMinMS, awayMaxMS)).during?.(team)

const cutOne =
  (how: 'refused' | 'swallowed'): Fault =>
  async ({ team, proxied }) => {
    if (proxied) await cutOff(team, { ...proxied, how }, team.random.int(awayMinMS, awayMaxMS))
  }

const onServers =
  (fault: (servers: FaultyServers) => Promise<void>): Fault =>
  async ({ team, servers }) => {
    await fault(servers)
    team.note('a fault of servers is over')
  }

/** Faults by kind. Each leaves everybody running and within reach, but not yet at work again. */
const soakFaults: Record<string, Fault> = {
  kill: killOne,
  stop: during((awayMS) => stop('anybody', { awayMS })),
  'stop of the coordinator': during((awayMS) => stop('the coordinator', { awayMS })),
  pause: pauseWhenRunning,
  join: joinAndLeaveAgain,
  'stepdown of the source': onServers(stepDowns('source', 1, 500)),
  'stepdown of the destination': onServers(stepDowns('destination', 1, 500)),
  'cut of the source': onServers(cuts('source', 1, 500, 4_000)),
  'cut of the destination': onServers(cuts('destination', 1, 500, 4_000)),
  'network refused': cutOne('refused'),
  'network swallowed': cutOne('swallowed'),
}

export const soakFaultKinds = Object.keys(soakFaults)

/** Also while a commit or a reversal is under way. */
export async function killOne({ team, spared }: SoakTarget): Promise<void> {
  const id = team.random.pick(team.ids.filter((one) => one !== spared))
  await team.kill(id)
  await comeBack(team, id)
}

/** What is commanded has a state in which it is accepted. */
const allRun = ({ team }: SoakTarget) => team.allReach('RUNNING', ({ state }) => state === 'RUNNING', 120)

async function pauseWhenRunning(target: SoakTarget): Promise<void> {
  await allRun(target)
  await pauseOne().during?.(target.team)
}

async function joinAndLeaveAgain(target: SoakTarget): Promise<void> {
  const { team, start } = target
  await allRun(target)
  await team.start(guest)
  // Who was here before goes on by itself, also in the other direction.
  const { state } = await team.get(guest).progress()
  if (state === 'IDLE') await team.command(guest, 'start', start)
  await sleep(team.random.int(0, 6_000))
  await team.leave(guest)
}

/** Draws one of these faults after the other until the time is over, at least one; `counts` is told of each that has happened. */
export async function injectFaults(
  target: SoakTarget,
  names: readonly string[],
  until: number,
  counts: Record<string, number>,
): Promise<void> {
  const { random } = target.team
  for (;;) {
    await sleep(random.int(500, 8_000))
    if (Date.now() >= until && Object.keys(counts).length > 0) return
    const name = random.pick(names)
    if (name.startsWith('network') && !target.proxied) continue
    if (name.startsWith('cut') && target.servers.source.proxies.length === 0) continue
    await soakFaults[name]?.(target)
    counts[name] = (counts[name] ?? 0) + 1
  }
}
