import { setTimeout as sleep } from 'node:timers/promises'
import type { TcpProxy } from '../support/tcp-proxy.ts'
import type { RunningInstances } from './running-instances.ts'
import type { InstanceFault } from './several-instances.ts'

/** Faults of single instances. The delays between them are random; they do not wait for a condition. */

/** Milliseconds for which an instance is suspended or disconnected: longer than its lease lasts. */
export interface Away {
  awayMS: number
}

/**
 * Kills a random instance or the coordinator `count` times. Each killed instance is restarted, the last one only if
 * `again` is set.
 */
export function kill(whom: 'an instance' | 'the coordinator', count: number, again: boolean): InstanceFault {
  return {
    name: `kill -9 of ${whom}${again ? '' : ', which never comes back'}`,
    during: async (instances) => {
      for (let one = 0; one < count; one++) {
        await sleep(instances.random.int(0, 2_500))
        const id = whom === 'an instance' ? instances.random.pick(instances.ids) : await instances.coordinator()
        await instances.kill(id)
        if (one === count - 1 && !again) return await goneFor(instances, id)
        await comeBack(instances, id)
      }
    },
  }
}

/** Restarts a killed instance, sometimes after its lease has expired and others have taken over what it owned. */
export async function comeBack(instances: RunningInstances, id: string): Promise<void> {
  await sleep(instances.random.chance(0.3) ? instances.random.int(10_000, 13_000) : instances.random.int(0, 3_000))
  await instances.startAgain(id)
}

/** Suspends an instance until others have taken over. When it continues, it must do no harm and must take part again. */
export function stop(whom: 'an instance' | 'the coordinator', { awayMS }: Away): InstanceFault {
  return {
    name: `SIGSTOP of ${whom}`,
    during: async (instances) => {
      await sleep(instances.random.int(0, 3_000))
      const id = whom === 'an instance' ? instances.random.pick(instances.ids) : await instances.coordinator()
      instances.signalProcess(id, 'SIGSTOP')
      await sleep(awayMS)
      instances.signalProcess(id, 'SIGCONT')
    },
  }
}

/** Starts additional instances and ends instances by SIGTERM while the sync runs. */
export function joinAndLeave(): InstanceFault {
  return {
    name: 'joining and leaving',
    during: async (instances) => {
      await sleep(instances.random.int(0, 2_000))
      await join(instances, 'x')
      await sleep(instances.random.int(0, 3_000))
      await instances.leave(instances.random.pick(instances.ids))
      await sleep(instances.random.int(0, 2_000))
      await join(instances, 'y')
      await sleep(instances.random.int(0, 3_000))
      await instances.leave(await instances.coordinator())
    },
  }
}

async function join(instances: RunningInstances, id: string): Promise<void> {
  await instances.start(id)
  await instances.begin(id)
}

/** Cuts the network of one instance, or makes the network swallow everything that is sent. */
export function cut(how: Victim['how'], { awayMS }: Away): InstanceFault {
  let during = async (): Promise<void> => {}
  return {
    name: `network of one instance ${how}`,
    prepare: async (instances, ids) => {
      const { proxies, uris } = await instances.ownProxies()
      const [victim = ''] = ids
      await Promise.all(ids.map((id) => instances.start(id, id === victim ? uris : {})))
      await instances.begin(...ids)
      during = () => cutOff(instances, { id: victim, proxies, how }, awayMS)
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

export async function cutOff(instances: RunningInstances, { id, proxies, how }: Victim, awayMS: number): Promise<void> {
  await sleep(instances.random.int(0, 3_000))
  instances.unreachable.add(id)
  instances.died(id, `network ${how}`)
  if (how === 'refused') await Promise.all(proxies.map((proxy) => proxy.cut()))
  else for (const proxy of proxies) proxy.blackhole()
  await sleep(awayMS)
  for (const proxy of proxies) await proxy.heal()
  instances.note(`${id} is connected again`)
  instances.unreachable.delete(id)
}

/** Steps of a change of definitions at which a coordinator can be killed. */
export const barrierSteps = ['barrier', 'barrierDone'] as const
/** Steps of a commit at which a coordinator can be killed. */
export const commitSteps = [
  ...[
    'blockSource',
    'commitPoint',
    'compareDefinitions',
    'capped',
    'prepareIndexes',
    'verify',
    'reversePosition',
    'verdict',
  ],
  ...['restoreExpiry', 'unblock', 'finishIndexes'],
] as const

/** Kills the coordinator at a step, as by kill -9. The instance is restarted only if `again` is set. */
export function coordinatorDies(step: string, again: boolean): InstanceFault {
  const dies = async (instances: RunningInstances): Promise<void> => {
    if (!(await instances.awaitEnd('a', 90))) throw new Error(`the coordinator never reached ${step}`)
    if (!again) return await goneFor(instances, 'a')
    await sleep(instances.random.int(0, 4_000))
    await instances.startAgain('a')
  }
  const atBarrier = (barrierSteps as readonly string[]).includes(step)
  return {
    name: `coordinator killed at ${step}${again ? '' : ', which never comes back'}`,
    firstFaults: { crashAt: step },
    start: { enableUserWriteBlocking: 'sourceAndDestination' },
    ...(atBarrier ? { during: dies } : { atCommit: dies }),
  }
}

/** Pauses one instance while others run, and resumes it. Meanwhile, changes of definitions wait for that instance. */
export function pauseOne(): InstanceFault {
  return {
    name: 'pause of one instance',
    during: async (instances) => {
      await sleep(instances.random.int(0, 2_000))
      const id = instances.random.pick(instances.ids)
      await instances.command(id, 'pause')
      await sleep(instances.random.int(1_000, 5_000))
      await instances.command(id, 'resume')
    },
  }
}

/** Waits until the instance counts as lost, which takes as long as a lease lasts. */
async function goneFor(instances: RunningInstances, id: string): Promise<void> {
  if (instances.ids.length === 0) throw new Error(`${id} was the last instance`)
  await sleep(11_000)
}
