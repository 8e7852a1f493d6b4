import { setTimeout as sleep } from 'node:timers/promises'
import type { TcpProxy } from '../support/tcp-proxy.ts'
import { comeBack, cutOff, pauseOne, stop } from './instance-faults.ts'
import { changeLinks } from './link-changes.ts'
import type { RunningInstances } from './running-instances.ts'
import { cuts, type FaultyServers, stepDowns } from './server-faults.ts'
import type { InstanceFault } from './several-instances.ts'

/** The instances and servers into which a soak injects faults. */
export interface SoakTarget {
  instances: RunningInstances
  servers: FaultyServers
  /** The instance that is never killed, so that one process runs for the whole soak. */
  spared: string
  /** The instance that has proxies of its own, and those proxies. */
  proxied: { id: string; proxies: readonly TcpProxy[] } | null
  /** Body of `start` for the present direction. */
  start: Record<string, unknown>
}

type Fault = (target: SoakTarget) => Promise<void>

/** The kind of fault that needs proxies whose links can change. */
export const linkKind = 'links that change'

const awayMinMS = 500
/** Longer than a lease lasts. */
const awayMaxMS = 14_000
/** The instance that joins and leaves. */
const guest = 'x'

const during =
  (fault: (awayMS: number) => InstanceFault): Fault =>
  async ({ instances }) =>
    await fault(instances.random.int(awayMinMS, awayMaxMS)).during?.(instances)

const cutOne =
  (how: 'refused' | 'swallowed'): Fault =>
  async ({ instances, proxied }) => {
    if (proxied) await cutOff(instances, { ...proxied, how }, instances.random.int(awayMinMS, awayMaxMS))
  }

const onServers =
  (fault: (servers: FaultyServers) => Promise<void>): Fault =>
  async ({ instances, servers }) => {
    await fault(servers)
    instances.note('the fault of the servers is over')
  }

/** Faults by kind. After each, all instances run and are reachable, but they may not have resumed their work yet. */
const soakFaults: Record<string, Fault> = {
  kill: killOne,
  stop: during((awayMS) => stop('an instance', { awayMS })),
  'stop of the coordinator': during((awayMS) => stop('the coordinator', { awayMS })),
  pause: pauseWhenRunning,
  join: joinAndLeaveAgain,
  'stepdown of the source': onServers(stepDowns('source', 1, 500)),
  'stepdown of the destination': onServers(stepDowns('destination', 1, 500)),
  'cut of the source': onServers(cuts('source', 1, 500, 4_000)),
  'cut of the destination': onServers(cuts('destination', 1, 500, 4_000)),
  [linkKind]: onServers(changeForAWhile),
  'network refused': cutOne('refused'),
  'network swallowed': cutOne('swallowed'),
}

export const soakFaultKinds = Object.keys(soakFaults)

/** Links that become slow and narrow, and fast again. */
async function changeForAWhile(servers: FaultyServers): Promise<void> {
  await changeLinks(servers, AbortSignal.timeout(servers.random.int(awayMinMS, awayMaxMS)))
}

/** Kills and restarts one instance. May also be called during a commit or a reversal. */
export async function killOne({ instances, spared }: SoakTarget): Promise<void> {
  const id = instances.random.pick(instances.ids.filter((one) => one !== spared))
  await instances.kill(id)
  await comeBack(instances, id)
}

/** Waits for RUNNING, the state in which instances accept the commands of the faults. */
const allRun = ({ instances }: SoakTarget) => instances.allReach('RUNNING', ({ state }) => state === 'RUNNING', 120)

async function pauseWhenRunning(target: SoakTarget): Promise<void> {
  await allRun(target)
  await pauseOne().during?.(target.instances)
}

async function joinAndLeaveAgain(target: SoakTarget): Promise<void> {
  const { instances, start } = target
  await allRun(target)
  await instances.start(guest)
  // An instance that took part before continues without a command, also in the other direction.
  const { state } = await instances.get(guest).progress()
  if (state === 'IDLE') await instances.command(guest, 'start', start)
  await sleep(instances.random.int(0, 6_000))
  await instances.leave(guest)
}

/**
 * Injects randomly chosen faults, at least one, one after the other until the time is over. `counts` counts the
 * completed faults by kind.
 */
export async function injectFaults(
  target: SoakTarget,
  names: readonly string[],
  until: number,
  counts: Record<string, number>,
): Promise<void> {
  const { random } = target.instances
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
