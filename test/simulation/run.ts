import { setMaxListeners } from 'node:events'
import { Random } from '../support/random.ts'
import { mutationOf } from './breaks.ts'
import { takeOverTime } from './clock.ts'
import { Faults } from './faults.ts'
import type { WorldOptions } from './options.ts'
import type { Process } from './process.ts'
import { World } from './world.ts'

export interface SimulationResult {
  /** Null if every invariant held and the sync caught up in time. */
  violation: string | null
  steps: number
  /** Simulated time in seconds. */
  seconds: number
  events: number
  /** Number of documents that foreign writes changed and the verdict named. */
  differences: number
  faults: Map<string, number>
  failures: Map<string, number>
  costs: Map<string, { commands: number; documents: number }>
  restSeconds: number
  /** Number of batches that verifiers took from event application. */
  shared: number
  /** Number of ranges that instances compared for the verifier of another instance. */
  helped: number
}

/** Time after the last fault within which the sync must have caught up, in ms. */
const restMaxMS = 240_000
/** Longer than a scan waits for an answer that a network partition has swallowed (`scanLimitMS`). */
const verdictMaxMS = 150_000

/** Runs one world to its end. The same options give the same steps. */
export async function simulate(options: WorldOptions): Promise<SimulationResult> {
  // main.ts sets the same limit.
  setMaxListeners(200)
  const world = new World(options)
  const restore = takeOverTime(world.clock)
  const unwatch = world.invariants.verifier.watch()
  const revert = options.breaks ? mutationOf(options.breaks).code?.() : undefined
  const faults = new Faults(world, new Random(`faults ${options.seed}`))
  let restedAt = 0
  let calmedAt = 0
  let differences = 0
  try {
    await run(world, faults)
  } catch (error) {
    if (!(error instanceof Violated)) throw error
  } finally {
    revert?.()
    unwatch()
    restore()
  }
  return {
    violation: world.invariants.violation,
    steps: world.clock.steps,
    seconds: world.clock.now / 1_000,
    events: world.source.server.log.events.length,
    differences,
    faults: faults.counts,
    failures: world.failures,
    costs: world.destination.server.costs,
    restSeconds: (restedAt - calmedAt) / 1_000,
    shared: world.invariants.verifier.shared,
    helped: world.invariants.verifier.helped,
  }

  async function run(world: World, faults: Faults): Promise<void> {
    world.initialise()
    await until(
      world,
      () => world.initialised,
      10_000,
      () => 'the sync was not initialised',
    )
    for (let count = 0; count < 3; count++)
      if (options.faultRate > 0) world.tamper(new Random(`before ${options.seed} ${count}`))
    for (const [at, instance] of world.instances.entries()) instance.start(at * 50)
    world.workload.begin()
    faults.begin()
    while (world.clock.steps < options.steps) await step(world)
    faults.end()
    calmedAt = world.clock.now
    world.workload.stopped = true
    await until(
      world,
      () => isAtRest(world),
      restMaxMS,
      () => whyNot(world),
    )
    restedAt = world.clock.now
    differences = await verdict(world)
  }
}

class Violated extends Error {}

async function step(world: World): Promise<void> {
  const { clock, invariants } = world
  if (!(await clock.step())) throw new Error('no event is scheduled any more')
  const acted = clock.last && world.processAt(clock.last)
  if (acted) invariants.acted(acted)
  if (invariants.violation) throw new Violated()
}

async function until(world: World, isSo: () => boolean, limitMS: number, why: () => string): Promise<void> {
  const end = world.clock.now + limitMS
  let askedAt = 0
  for (;;) {
    // The condition is checked only every 50 ms because it reads the whole world.
    if (world.clock.now - askedAt >= 50) {
      askedAt = world.clock.now
      if (isSo()) return
    }
    if (world.clock.now > end) {
      world.invariants.violation ??= `${(world.clock.now / 1_000).toFixed(3)} s: ${why()}`
      throw new Violated()
    }
    await step(world)
  }
}

/**
 * Returns whether every change is published, applied and passed by its partition's position, and all instances own a
 * share of the partitions.
 */
function isAtRest(world: World): boolean {
  return whyNot(world) === ''
}

function whyNot(world: World): string {
  const { content, source, destination, invariants, processes, instances, workload } = world
  if (!world.isCopied) return 'not all collections are copied'
  if (workload.defined.length > 0) return 'DDL is not published yet'
  const end = source.server.log.events.length
  const behind = invariants.positions.filter((position) => position < end).length
  if (behind > 0) return `${behind} partitions have not reached the end of the stream`
  const tokens = new Set(processes.map(({ token }) => token))
  if (tokens.has(null) || tokens.size < instances.length) return 'an instance has no lease'
  const ownership = destination.server.collection('ownership')
  const shares = new Map<string, number>()
  for (let partition = 0; partition < content.partitions; partition++) {
    const owner = ownership.get(partition)?.['owner']
    if (!tokens.has(owner)) return `partition ${partition} has no owner with a lease`
    shares.set(owner, (shares.get(owner) ?? 0) + 1)
  }
  const counts = [...tokens].map((token) => shares.get(token as string) ?? 0)
  if (Math.max(...counts) - Math.min(...counts) > 1) return 'the partitions are not evenly distributed'
  if (!tokens.has(ownership.get('coordinator')?.['owner'])) return 'there is no coordinator'
  const different = content.different().filter((document) => !content.foreign.has(document))
  if (different.length > 0)
    return `${different.length} documents differ without a foreign write, the first is ${different[0]}`
  for (const [collection, indexes] of source.server.indexes.entries()) {
    const existing = destination.server.indexes[collection]
    if ([...indexes.keys()].sort().join() !== [...(existing?.keys() ?? [])].sort().join()) return 'indexes differ'
  }
  return ''
}

/** Compares the verifier's verdict with the actual differences once the sync has caught up. Returns the number of differences. */
async function verdict(world: World): Promise<number> {
  const { clock, content, invariants, destination } = world
  let outcome: number | null = null
  const requestVerdict = (leader: Process): void => {
    const { verification, record } = leader.session
    verification
      .issueVerdict(record.configuration, async () => 0)
      .then(
        () => {
          outcome = 0
        },
        (error) => {
          if (error?.failure === 'VerificationFailed') outcome = 1
          else askedLeader = null
        },
      )
  }
  let askedLeader: Process | null = null
  const hasVerdict = (): boolean => {
    const leader = world.processes.find(({ session }) => session.coordination.leading)
    if (leader && leader !== askedLeader) {
      askedLeader = leader
      clock.after(0, leader.host, () => requestVerdict(leader))
    }
    return outcome !== null
  }
  await until(world, hasVerdict, verdictMaxMS, () => 'the verifier issued no verdict')
  const real = content.different()
  const named = destination.server
    .collection('mismatches')
    .documents()
    .map(({ mismatch }) => JSON.parse(mismatch))
  const ids = named.map(({ id }) => Number(id?.$numberInt)).sort((one, other) => one - other)
  if (ids.join() !== real.join()) {
    invariants.violation ??= `the verdict names ${ids.join(', ') || 'no documents'}, but the documents that differ are ${real.join(', ') || 'none'}`
    throw new Violated()
  }
  const left = destination.server.collection('rechecks').size - real.length
  if (left > 0) invariants.violation ??= `${left} unnecessary rechecks are stored`
  return real.length
}
