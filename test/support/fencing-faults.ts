import { mkdtempSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { guardPath } from './guarded-process.ts'
import { startHotWrites } from './hot-writes.ts'
import { type LateLine, startLateLine } from './late-line.ts'
import type { RunningTeam } from './running-team.ts'
import type { SteppedClock } from './stepped-clock.ts'
import type { Faults } from './tandem-process.ts'
import type { TeamFault } from './team-scenario.ts'

/**
 * Faults by which an old write might come after a newer one, or two processes write at a time. The verifier, which would find what they
 * did, is off.
 */

const start = { verification: { enabled: false } }
/** Other writes than the newest may have been applied before the last of them is late. */
const newerForMS = 1_000

/** @param when the last writes are delivered while the sync runs, or after the commit was sent */
export function lateDelivery(
  how: 'cut' | 'hanging',
  { lateMS, rounds, when }: { lateMS: [number, number]; rounds: number; when: 'running' | 'at commit' },
): TeamFault {
  let line: LateLine | null = null
  const lateness = (team: RunningTeam) => team.random.int(...lateMS)
  const deliver = async (team: RunningTeam): Promise<void> => {
    await sleep(lateness(team))
    await line?.deliver()
    team.note('delivered')
  }
  return {
    name: `late delivery, connections ${how}, ${when}`,
    start,
    prepare: async (team, ids) => {
      line = await startLateLine(team.pair.destination.hosts[0] as string)
      team.keep(line)
      const uris = { cluster0: team.pair.source.uri, cluster1: line.uri }
      await Promise.all(ids.map((id) => team.start(id, uris)))
      await team.begin(...ids)
    },
    during: async (team) => {
      for (let round = 1; round <= rounds; round++) {
        const hot = await startHotWrites(team.pair.source.uri, team.random)
        // Mostly writes that follow changes, else those of the copy.
        if (when === 'at commit' || team.random.chance(0.75)) await hot.arrive(team.pair.destination.uri)
        await sleep(team.random.int(100, 1_500))
        team.note('held back from here')
        await line?.hold()
        if (how === 'cut') await line?.cut()
        team.faults += 1
        await sleep(newerForMS)
        await hot.stop()
        if (round < rounds || when === 'running') await deliver(team)
      }
    },
    ...(when === 'at commit' && {
      atCommit: async (team: RunningTeam) => {
        for (const id of team.ids) team.disturbed.add(id)
        await deliver(team)
      },
    }),
  }
}

/** The destination's clock goes 30 s ahead or back, and there again. */
export function clockSteps(clock: SteppedClock, count: number): TeamFault {
  const stepSeconds = 30
  return {
    name: `clock of the destination stepped ${count} times`,
    start,
    during: async (team) => {
      const hot = await startHotWrites(team.pair.source.uri, team.random)
      for (let step = 1; step <= count; step++) {
        await sleep(team.random.int(200, 3_000))
        const direction = clock.aheadSeconds === 0 ? (team.random.chance(0.5) ? 1 : -1) : -Math.sign(clock.aheadSeconds)
        clock.step(direction * stepSeconds)
        team.note(`clock of the destination: ${clock.aheadSeconds} s ahead`)
        team.faults += 1
      }
      // Longer than a lease lasts that the new clock would have ended.
      await sleep(team.random.int(2_000, 12_000))
      await hot.stop()
    },
  }
}

/** @param clocks `go on` as by SIGSTOP; `stand still`: the monotonic one does, as while a virtual machine is suspended */
export function suspension(
  whom: 'first' | 'coordinator',
  clocks: 'go on' | 'stand still',
  awayMS: [number, number],
): TeamFault {
  const stoodStill = new Map<string, string>()
  const makeClock = (id: string): Faults => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-suspended-'))
    guardPath(folder)
    const file = path.join(folder, 'milliseconds')
    writeFileSync(file, '0')
    stoodStill.set(id, file)
    return { stoodStill: file }
  }
  return {
    name: `${whom === 'first' ? 'an instance' : 'the coordinator'} suspended, monotonic clocks ${clocks}`,
    start,
    prepare: async (team, ids) => {
      await Promise.all(ids.map((id) => team.start(id, clocks === 'stand still' ? { faults: makeClock(id) } : {})))
      await team.begin(...ids)
    },
    during: async (team) => {
      const hot = await startHotWrites(team.pair.source.uri, team.random)
      await sleep(team.random.int(0, 3_000))
      const id = whom === 'first' ? (team.ids[0] as string) : await team.coordinator()
      team.signalProcess(id, 'SIGSTOP')
      const from = performance.now()
      await sleep(team.random.int(...awayMS))
      await hot.stop()
      const file = stoodStill.get(id)
      if (file) writeFileSync(file, String(Math.floor(performance.now() - from)))
      team.signalProcess(id, 'SIGCONT')
    },
  }
}

/** A pod is started in the place of one that is alive: the same host name, pid and id, and neither knows of the other. */
export function podReplacement(end: 'killed' | 'suspended', besideMS: [number, number]): TeamFault {
  const pod = { pod: 'tandem-0' }
  return {
    name: `a pod replaced, its predecessor ${end} later`,
    start,
    prepare: async (team, ids) => {
      await Promise.all(ids.map((id, index) => team.start(id, index === 0 ? pod : {})))
      await team.begin(...ids)
    },
    during: async (team) => {
      const hot = await startHotWrites(team.pair.source.uri, team.random)
      await sleep(team.random.int(0, 2_000))
      const [id = ''] = team.ids
      const first = await team.replace(id, pod)
      await sleep(team.random.int(...besideMS))
      const { state } = await first.progress()
      if (state !== 'RUNNING') throw new Error(`the predecessor, which is alive, is ${state}`)
      team.died(id, end)
      if (end === 'killed') await first.kill9()
      else process.kill(first.pid, 'SIGSTOP')
      await team.connected(id)
      await hot.stop()
      if (end === 'killed') return
      process.kill(first.pid, 'SIGCONT')
      await lost(first)
    },
  }
}

async function lost(first: Awaited<ReturnType<RunningTeam['replace']>>): Promise<void> {
  const timeout = { timeoutSeconds: 30, what: 'FAILED' }
  const { failure } = await first.waitFor(({ state }) => state === 'FAILED', timeout)
  if (failure?.error !== 'LeaseLost') throw new Error(`the predecessor says ${JSON.stringify(failure)}`)
}
