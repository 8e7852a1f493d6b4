import { setMaxListeners } from 'node:events'
import { Random } from '../support/random.ts'
import { mutationOf } from './breaks.ts'
import { takeOverTime } from './clock.ts'
import { Faults } from './faults.ts'
import type { WorldOptions } from './options.ts'
import type { Process } from './process.ts'
import { World } from './world.ts'

export interface SimulationResult {
  /** Null when every invariant held and everything came to rest. */
  violation: string | null
  steps: number
  /** Simulated time, seconds. */
  seconds: number
  events: number
  /** Documents that somebody else had changed, and the verdict named. */
  differences: number
  faults: Map<string, number>
  failures: Map<string, number>
  costs: Map<string, { commands: number; documents: number }>
  restSeconds: number
  /** Batches that verifiers took from event application. */
  shared: number
}

/** After the last fault everything must be at rest, and proven, in this time. */
const restMaxMS = 240_000
/** Longer than a scan waits for an answer that a partition has swallowed (`scanLimitMS`). */
const verdictMaxMS = 150_000

/** Runs one world from its seed to its end. The same options give the same steps. */
export async function simulate(options: WorldOptions): Promise<SimulationResult> {
  // As main.ts has it.
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
  if (!(await clock.step())) throw new Error('nothing is to happen any more')
  const acted = clock.last && world.processAt(clock.last)
  if (acted) invariants.acted(acted)
  if (invariants.violation) throw new Violated()
}

async function until(world: World, isSo: () => boolean, limitMS: number, why: () => string): Promise<void> {
  const end = world.clock.now + limitMS
  let askedAt = 0
  for (;;) {
    // Asked now and then: it looks at everything.
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

/** Every change is published, applied and passed by its partition's position, and everybody has a share. */
function isAtRest(world: World): boolean {
  return whyNot(world) === ''
}

function whyNot(world: World): string {
  const { content, source, destination, invariants, processes, instances, workload } = world
  if (!world.isCopied) return 'not everything is copied'
  if (workload.defined.length > 0) return 'a change of definitions is not published'
  const end = source.server.log.events.length
  const behind = invariants.positions.filter((position) => position < end).length
  if (behind > 0) return `${behind} partitions have not come to the end of the stream`
  const tokens = new Set(processes.map(({ token }) => token))
  if (tokens.has(null) || tokens.size < instances.length) return 'an instance has no lease'
  const ownership = destination.server.collection('ownership')
  const shares = new Map<string, number>()
  for (let partition = 0; partition < content.partitions; partition++) {
    const owner = ownership.get(partition)?.['owner']
    if (!tokens.has(owner)) return `partition ${partition} is nobody's`
    shares.set(owner, (shares.get(owner) ?? 0) + 1)
  }
  const counts = [...tokens].map((token) => shares.get(token as string) ?? 0)
  if (Math.max(...counts) - Math.min(...counts) > 1) return 'shares are not even'
  if (!tokens.has(ownership.get('coordinator')?.['owner'])) return 'nobody coordinates'
  const different = content.different().filter((document) => !content.foreign.has(document))
  if (different.length > 0) return `${different.length} documents differ for no reason, the first is ${different[0]}`
  for (const [collection, indexes] of source.server.indexes.entries()) {
    const standing = destination.server.indexes[collection]
    if ([...indexes.keys()].sort().join() !== [...(standing?.keys() ?? [])].sort().join()) return 'indexes differ'
  }
  return ''
}

/** What the verifier says once all is at rest, against what is so. Returns how many differences it named. */
async function verdict(world: World): Promise<number> {
  const { clock, content, invariants, destination } = world
  let said: number | null = null
  const ask = (leader: Process): void => {
    const { verification, record } = leader.work
    verification
      .settle(record.configuration, async () => 0)
      .then(
        () => {
          said = 0
        },
        (error) => {
          if (error?.failure === 'VerificationFailed') said = 1
          else asked = null
        },
      )
  }
  let asked: Process | null = null
  const isSaid = (): boolean => {
    const leader = world.processes.find(({ work }) => work.coordination.leading)
    if (leader && leader !== asked) {
      asked = leader
      clock.after(0, leader.host, () => ask(leader))
    }
    return said !== null
  }
  await until(world, isSaid, verdictMaxMS, () => 'no verdict came')
  const real = content.different()
  const named = destination.server
    .collection('mismatches')
    .documents()
    .map(({ mismatch }) => JSON.parse(mismatch))
  const ids = named.map(({ id }) => Number(id?.$numberInt)).sort((one, other) => one - other)
  if (ids.join() !== real.join()) {
    invariants.violation ??= `the verdict names ${ids.join(', ') || 'nothing'}; different are ${real.join(', ') || 'none'}`
    throw new Violated()
  }
  const left = destination.server.collection('rechecks').size - real.length
  if (left > 0) invariants.violation ??= `${left} rechecks are stored that nobody needs`
  return real.length
}
