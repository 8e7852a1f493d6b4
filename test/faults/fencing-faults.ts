import { mkdtempSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { guardPath } from '../support/guarded-process.ts'
import type { SteppedClock } from '../support/stepped-clock.ts'
import type { Faults } from '../support/tandem-process.ts'
import { startHotWrites } from './hot-writes.ts'
import { type LateLine, startLateLine } from './late-line.ts'
import type { RunningInstances } from './running-instances.ts'
import type { InstanceFault } from './several-instances.ts'

/**
 * Faults that might let an old write take effect after a newer one, or let two processes write at the same time. The verifier is off
 * because it would detect the consequences.
 */

const start = { verification: { enabled: false } }
/** Milliseconds in which newer writes are applied before the writes that are held back are delivered. */
const newerForMS = 1_000

/** @param when whether the last writes are delivered while the sync runs or after the commit was sent */
export function lateDelivery(
  how: 'cut' | 'hanging',
  { lateMS, rounds, when }: { lateMS: [number, number]; rounds: number; when: 'running' | 'at commit' },
): InstanceFault {
  let line: LateLine | null = null
  const lateness = (instances: RunningInstances) => instances.random.int(...lateMS)
  const deliver = async (instances: RunningInstances): Promise<void> => {
    await sleep(lateness(instances))
    await line?.deliver()
    instances.note('the writes that were held back are delivered')
  }
  return {
    name: `late delivery, connections ${how}, ${when}`,
    start,
    prepare: async (instances, ids) => {
      line = await startLateLine(instances.clusters.destination.hosts?.[0] as string)
      instances.keep(line)
      const uris = { cluster0: instances.clusters.source.uri, cluster1: line.uri }
      await Promise.all(ids.map((id) => instances.start(id, uris)))
      await instances.begin(...ids)
    },
    during: async (instances) => {
      for (let round = 1; round <= rounds; round++) {
        const hot = await startHotWrites(instances.clusters.source.uri, instances.random)
        // Usually the fault delays writes of event application, otherwise writes of the copy.
        if (when === 'at commit' || instances.random.chance(0.75)) await hot.arrive(instances.clusters.destination.uri)
        await sleep(instances.random.int(100, 1_500))
        instances.note('writes are held back from now on')
        await line?.hold()
        if (how === 'cut') await line?.cut()
        instances.faults += 1
        await sleep(newerForMS)
        await hot.stop()
        if (round < rounds || when === 'running') await deliver(instances)
      }
    },
    ...(when === 'at commit' && {
      atCommit: async (instances: RunningInstances) => {
        for (const id of instances.ids) instances.disturbed.add(id)
        await deliver(instances)
      },
    }),
  }
}

export const clockStepsName = (count: number): string => `clock of the destination stepped ${count} times`

/** Steps the destination's clock by 30 s forwards or backwards, and then back again. */
export function clockSteps(clock: SteppedClock, count: number): InstanceFault {
  const stepSeconds = 30
  return {
    name: clockStepsName(count),
    start,
    during: async (instances) => {
      const hot = await startHotWrites(instances.clusters.source.uri, instances.random)
      for (let step = 1; step <= count; step++) {
        await sleep(instances.random.int(200, 3_000))
        const direction =
          clock.aheadSeconds === 0 ? (instances.random.chance(0.5) ? 1 : -1) : -Math.sign(clock.aheadSeconds)
        clock.step(direction * stepSeconds)
        instances.note(`clock of the destination: ${clock.aheadSeconds} s ahead`)
        instances.faults += 1
      }
      // The wait may be longer than a lease, so a lease that the stepped clock expires too early would be taken over.
      await sleep(instances.random.int(2_000, 12_000))
      await hot.stop()
    },
  }
}

/** @param clocks whether the monotonic clock keeps running, as under SIGSTOP, or stops, as while a virtual machine is suspended */
export function suspension(
  whom: 'first' | 'coordinator',
  clocks: 'keep running' | 'stop',
  awayMS: [number, number],
): InstanceFault {
  const clockFiles = new Map<string, string>()
  const makeClock = (id: string): Faults => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-suspended-'))
    guardPath(folder)
    const file = path.join(folder, 'milliseconds')
    writeFileSync(file, '0')
    clockFiles.set(id, file)
    return { stoodStill: file }
  }
  return {
    name: `${whom === 'first' ? 'an instance' : 'the coordinator'} suspended, monotonic clocks ${clocks}`,
    start,
    prepare: async (instances, ids) => {
      await Promise.all(ids.map((id) => instances.start(id, clocks === 'stop' ? { faults: makeClock(id) } : {})))
      await instances.begin(...ids)
    },
    during: async (instances) => {
      const hot = await startHotWrites(instances.clusters.source.uri, instances.random)
      await sleep(instances.random.int(0, 3_000))
      const id = whom === 'first' ? (instances.ids[0] as string) : await instances.coordinator()
      instances.signalProcess(id, 'SIGSTOP')
      const from = performance.now()
      await sleep(instances.random.int(...awayMS))
      await hot.stop()
      const file = clockFiles.get(id)
      if (file) writeFileSync(file, String(Math.floor(performance.now() - from)))
      instances.signalProcess(id, 'SIGCONT')
    },
  }
}

/** Starts a replacement for a pod that is still running. Both have the same host name, pid and id, and neither knows about the other. */
export function podReplacement(end: 'killed' | 'suspended', overlapMS: [number, number]): InstanceFault {
  const pod = { pod: 'tandem-0' }
  return {
    name: `a pod replaced, its predecessor ${end} later`,
    start,
    prepare: async (instances, ids) => {
      await Promise.all(ids.map((id, index) => instances.start(id, index === 0 ? pod : {})))
      await instances.begin(...ids)
    },
    during: async (instances) => {
      const hot = await startHotWrites(instances.clusters.source.uri, instances.random)
      await sleep(instances.random.int(0, 2_000))
      const [id = ''] = instances.ids
      const first = await instances.replace(id, pod)
      await sleep(instances.random.int(...overlapMS))
      const { state } = await first.progress()
      if (state !== 'RUNNING') throw new Error(`the predecessor, which is still running, is in state ${state}`)
      instances.died(id, end)
      if (end === 'killed') await first.kill9()
      else process.kill(first.pid, 'SIGSTOP')
      await instances.connected(id)
      await hot.stop()
      if (end === 'killed') return
      process.kill(first.pid, 'SIGCONT')
      await losesItsLease(first)
    },
  }
}

async function losesItsLease(first: Awaited<ReturnType<RunningInstances['replace']>>): Promise<void> {
  const timeout = { timeoutSeconds: 30, what: 'FAILED' }
  const { failure } = await first.waitFor(({ state }) => state === 'FAILED', timeout)
  if (failure?.error !== 'LeaseLost') throw new Error(`the predecessor reports ${JSON.stringify(failure)}`)
}
