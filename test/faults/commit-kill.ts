import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import type { Progress } from '../../src/domain/progress.ts'
import { CutoverClient } from '../support/cutover-client.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { Random } from '../support/random.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import type { Pair } from './clusters.ts'
import { type CommitKillPlan, describePlan } from './commit-kill-plan.ts'
import { type MigrationResult, type RunningMigration, runMigration } from './migration.ts'
import type { RunningInstances } from './running-instances.ts'

export interface CommitKillResult {
  /** Why nothing was run: this build does not have the command. Null when the plan was run. */
  skipped: string | null
  sourceWrites: number
  destinationWrites: number
  faults: number
  /** Milliseconds from the last commit that was sent until `canWrite` was first shown. */
  writableAfterMS: number
}

const endSeconds = 90
/** HTTP status of ConfigurationMismatch. */
const differentCommitStatus = 422
/** The command is sent again to an instance that stays RUNNING for this long while others are COMMITTING: it lost the command when it was killed. */
const lostCommandMS = 3_000
const writableMS = 5_000

/**
 * Runs one migration that is committed while instances are killed and one client writes on each cluster. The source's
 * client writes until the source refuses its writes. If the source is never blocked, the operator stops that client
 * before `commit`. The destination's client writes as soon as it may. At the end, every acknowledged write is looked up
 * on the destination. Then the writes of the destination's client are undone, and both clusters are compared.
 */
export async function runCommitKill(
  pair: Pair,
  seed: number,
  plan: CommitKillPlan,
): Promise<MigrationResult<CommitKillResult>> {
  await using source = await MongoClient.connect(pair.source.uri)
  await using destination = await MongoClient.connect(pair.destination.uri)
  const random = new Random(`commit kill of ${seed}`)
  const clients = clientsOf({ source, destination }, random)
  const { enableUserWriteBlocking } = plan
  const options = {
    clusters: pair,
    name: `commit-kill-${seed}`,
    // The label is part of the seed: another label would not reproduce the runs of past releases.
    random: random.fork('team'),
    start: { enableUserWriteBlocking },
  }
  return await runMigration(options, async (migration) => {
    migration.instances.note(describePlan(plan))
    await seedForCutover(source)
    const run = new CommitKillRun(migration, plan, { source, destination }, clients)
    migration.atEnd(() => run.stop())
    const skipped = await run.perform()
    if (skipped) migration.endsWithoutComparison()
    else await run.findProblems()
    return { skipped, ...run.figures }
  })
}

interface Applications {
  ofSource: CutoverClient
  ofDestination: CutoverClient
  random: Random
}

/** Creates an application on each cluster, and the generator of the run's other random choices. */
function clientsOf(clients: { source: MongoClient; destination: MongoClient }, random: Random): Applications {
  const client = (side: 'source' | 'destination', changes: 'odd' | 'even') =>
    new CutoverClient({ client: clients[side], name: side, changes, random: random.fork(side) })
  return { ofSource: client('source', 'odd'), ofDestination: client('destination', 'even'), random }
}

class CommitKillRun {
  readonly #migration: RunningMigration<Pair>
  readonly #plan: CommitKillPlan
  readonly #random: Random
  readonly #clients: { source: MongoClient; destination: MongoClient }
  readonly #ofSource: CutoverClient
  readonly #ofDestination: CutoverClient
  readonly #instances: RunningInstances
  readonly #stopped = new AbortController()
  #watching: Promise<void> = Promise.resolve()
  #faults: Promise<void> = Promise.resolve()
  /** True if the last command may lead to `canWrite`. */
  #mayBecomeWritable = false
  #commandAt = 0
  #writableAfterMS = 0

  constructor(
    migration: RunningMigration<Pair>,
    plan: CommitKillPlan,
    clients: { source: MongoClient; destination: MongoClient },
    { ofSource, ofDestination, random }: Applications,
  ) {
    this.#migration = migration
    this.#instances = migration.instances
    this.#plan = plan
    this.#clients = clients
    this.#random = random
    this.#ofSource = ofSource
    this.#ofDestination = ofDestination
  }

  get figures(): Omit<CommitKillResult, 'skipped'> {
    return {
      sourceWrites: this.#ofSource.acknowledged,
      destinationWrites: this.#ofDestination.acknowledged,
      faults: this.#instances.faults,
      writableAfterMS: Math.round(this.#writableAfterMS),
    }
  }

  get #blocksSource(): boolean {
    return this.#plan.enableUserWriteBlocking === 'sourceAndDestination'
  }

  /** Runs the plan until all instances are COMMITTED. Returns why this build cannot carry out the plan, or null. */
  async perform(): Promise<string | null> {
    const { instances, death, way } = this.#plan
    const ids = ['a', 'b', 'c'].slice(0, instances)
    // The first instance runs alone until it is the coordinator.
    for (const id of ids) {
      await this.#instances.start(id, id === 'a' && 'atStep' in death ? { faults: { crashAt: death.atStep } } : {})
      const skipped = id === 'a' ? await this.#unsupported() : null
      if (skipped) return skipped
      if (id === 'a') this.#ofSource.begin()
      await this.#instances.begin(id)
    }
    await this.#instances.allReach('canCommit', ({ canCommit }) => canCommit, 60)
    this.#watching = this.#watch()
    if (this.#plan.eager) this.#ofDestination.begin()
    this.#faults = this.#kill()
    this.#faults.catch(() => {})
    if (way !== 'commit') await this.#runDetour()
    await this.#commitToTheEnd()
    return null
  }

  async #unsupported(): Promise<string | null> {
    const { way } = this.#plan
    if (way === 'commit') return null
    const { status } = await (way === 'abort'
      ? this.#instances.get('a').post('abort')
      : this.#instances.get('a').post('commit', this.#bodyOf(way)))
    // In IDLE, tandem refuses a command that it knows with WrongState.
    return status === 409 ? null : `${way} answered ${status}`
  }

  #bodyOf(way: 'dryRun' | 'maxSeconds'): Record<string, unknown> {
    return way === 'dryRun' ? { dryRun: true } : { maxSeconds: this.#plan.maxSeconds }
  }

  /**
   * Runs a rehearsal, a commit with a time limit, or a commit and an abort. Ends with all instances RUNNING, or
   * COMMITTED if the commit was faster.
   */
  async #runDetour(): Promise<void> {
    const { way, abortAfterMS } = this.#plan
    if (way === 'dryRun' || way === 'maxSeconds') {
      await this.#commit(this.#bodyOf(way))
      await this.#waitUntilStable(this.#bodyOf(way))
      if (way === 'dryRun') await this.#checkRehearsed()
    } else if (way === 'abort') {
      await this.#commit({})
      await sleep(abortAfterMS)
      await this.#abort()
    }
  }

  async #abort(): Promise<void> {
    const id = this.#instances.ids.length > 0 ? this.#random.pick(this.#instances.ids) : null
    const answer = id ? await this.#send(id, 'abort') : null
    if (answer !== 200) return
    // The abort is acknowledged, so only another commit can lead to `canWrite`.
    this.#mayBecomeWritable = false
    await this.#waitUntilStable(null)
    this.#checkHeldBack('an abort')
  }

  async #checkRehearsed(): Promise<void> {
    this.#checkHeldBack('a rehearsal')
    if (this.#instances.faults > 0) return // an instance may have died before it stored the result of the rehearsal
    const all = await Promise.all(this.#instances.ids.map((id) => this.#readProgress(id)))
    if (!all.every((progress) => progress && 'lastRehearsal' in progress)) {
      this.#report('progress has no lastRehearsal after a rehearsal without faults')
    }
  }

  #checkHeldBack(after: string): void {
    if (this.#ofDestination.acknowledged > 0) this.#report(`the destination accepted writes before ${after} had ended`)
  }

  /** Sends `commit` to the instances that are RUNNING until all are COMMITTED and no more kills are planned. */
  async #commitToTheEnd(): Promise<void> {
    let state = await this.#waitUntilStable({})
    for (let attempt = 0; state === 'RUNNING'; attempt++) {
      if (attempt > 20) throw new Error('the instances are RUNNING again after each of 20 commits')
      await this.#sourceIsWritable()
      await this.#commit({})
      state = await this.#waitUntilStable({})
    }
    this.#instances.end()
    await this.#faults
    if ((await this.#waitUntilStable({})) !== 'COMMITTED')
      throw new Error('the instances are RUNNING after they were COMMITTED')
    const before = this.#ofDestination.acknowledged
    await within('users write on the destination after COMMITTED', () => this.#ofDestination.acknowledged > before + 10)
  }

  async #commit(body: Record<string, unknown>, ids = this.#instances.ids): Promise<void> {
    // If the source is not blocked, the operator must stop the application.
    if (!this.#blocksSource) await this.#ofSource.stop()
    this.#mayBecomeWritable = !('dryRun' in body)
    this.#commandAt = performance.now()
    const answers = await Promise.all(ids.map((id) => this.#send(id, 'commit', body)))
    if (answers.includes(differentCommitStatus)) await this.#abortOtherCommit()
  }

  /**
   * An instance that was killed and restarted continues a rehearsal that it had accepted and that never reached the
   * others. The others refuse every other commit until that rehearsal is aborted.
   */
  async #abortOtherCommit(): Promise<void> {
    const answers = await Promise.all(this.#instances.ids.map((id) => this.#send(id, 'abort')))
    if (answers.includes(200)) await this.#waitUntilStable(null)
  }

  /** Returns the status of the answer, or null if the instance died before it answered. */
  async #send(id: string, command: string, body: unknown = {}): Promise<number | null> {
    try {
      const answer = await this.#instances.get(id).post(command, body)
      this.#instances.note(`${id}: ${command} ${JSON.stringify(body)}: ${answer.status} ${answer.body.error ?? ''}`)
      return answer.status
    } catch (error) {
      this.#instances.note(`${id}: ${command}: ${error}`)
      return null
    }
  }

  /**
   * Waits until all instances are RUNNING and can commit, or all are COMMITTED.
   * @param resent body of the commit that is sent again to instances that lost it when they were killed; null: no commit is sent again
   */
  async #waitUntilStable(resent: Record<string, unknown> | null): Promise<'RUNNING' | 'COMMITTED'> {
    const deadline = performance.now() + endSeconds * 1_000
    let mixedSince: number | null = null
    for (;;) {
      const all = await Promise.all(
        this.#instances.ids.map(async (id) => ({ id, progress: await this.#readProgress(id) })),
      )
      for (const { id, progress } of all) {
        if (progress?.state === 'FAILED') throw new Error(`${id} FAILED: ${JSON.stringify(progress.failure)}`)
      }
      const running = all.filter(({ progress }) => progress?.state === 'RUNNING' && progress.canCommit)
      const committed = all.filter(({ progress }) => progress?.state === 'COMMITTED')
      if (all.length > 0 && running.length === all.length) return 'RUNNING'
      if (all.length > 0 && committed.length === all.length) return 'COMMITTED'
      mixedSince = running.length > 0 ? (mixedSince ?? performance.now()) : null
      if (resent && mixedSince !== null && performance.now() - mixedSince > lostCommandMS) {
        const ids = running.map(({ id }) => id)
        await this.#commit(resent, ids)
        mixedSince = null
      }
      if (performance.now() > deadline)
        throw new Error(
          `the instances are neither all RUNNING nor all COMMITTED after ${endSeconds} s: ${JSON.stringify(all)}`,
        )
      await sleep(30)
    }
  }

  async #readProgress(id: string): Promise<Progress | null> {
    try {
      return await this.#instances.get(id).progress()
    } catch {
      return null // the instance has died, or is not connected yet
    }
  }

  /** Starts the application on the source and waits for an acknowledged write, which the source accepts in RUNNING. */
  async #sourceIsWritable(): Promise<void> {
    this.#ofSource.begin()
    const before = this.#ofSource.acknowledged
    await within('the source accepts writes in RUNNING', () => this.#ofSource.acknowledged > before)
  }

  /** Polls all instances until stopped. Users write on the destination as soon as one instance shows `canWrite`. */
  async #watch(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      for (const id of this.#instances.ids) {
        if ((await this.#readProgress(id))?.canWrite !== true) continue
        if (this.#writableAfterMS === 0) this.#writableAfterMS = performance.now() - this.#commandAt
        if (!this.#mayBecomeWritable) this.#report(`${id} shows canWrite although no commit was sent that leads to it`)
        this.#ofDestination.begin()
      }
      await sleep(20)
    }
  }

  #report(problem: string): void {
    const { problems } = this.#migration
    if (!problems.includes(problem)) problems.push(problem)
  }

  async #kill(): Promise<void> {
    const { death } = this.#plan
    if ('atStep' in death) {
      if (await this.#instances.awaitEnd('a', endSeconds)) await this.#comeBack('a')
      return
    }
    for (const afterMS of death.afterMS) {
      await sleep(afterMS, undefined, { signal: this.#instances.signal }).catch(() => {})
      if (this.#instances.signal.aborted) return
      const id =
        death.whom === 'an instance' ? this.#random.pick(this.#instances.ids) : await this.#instances.coordinator()
      await this.#instances.kill(id)
      await this.#comeBack(id)
      if (this.#plan.awayMS === null) return
    }
  }

  async #comeBack(id: string): Promise<void> {
    const { awayMS } = this.#plan
    if (awayMS === null) return
    await sleep(awayMS)
    await this.#instances.startAgain(id)
  }

  /** Stops the instances and reports acknowledged writes that are lost, wrong write blocks, and differences. */
  async findProblems(): Promise<void> {
    const { source, destination } = this.#clients
    await this.stop()
    await this.#instances.stop()
    const { problems } = this.#migration
    for (const [side, client] of [['source', this.#ofSource] as const, ['destination', this.#ofDestination] as const]) {
      problems.push(...client.errors.map((error) => `a write on the ${side}: ${error}`))
      const missing = await client.missingOn(destination)
      problems.push(...missing.map((one) => `acknowledged on the ${side} but missing on the destination: ${one}`))
    }
    if (this.#ofDestination.refusedLater > 0) {
      problems.push(`the destination refused ${this.#ofDestination.refusedLater} writes after it had acknowledged some`)
    }
    if ((await writesBlocked(source)) !== this.#blocksSource) {
      problems.push(`the source is ${this.#blocksSource ? 'not blocked' : 'blocked'} after COMMITTED`)
    }
    if (await writesBlocked(destination)) {
      problems.push('the destination is blocked after COMMITTED')
      this.#migration.endsWithoutComparison()
    } else {
      await this.#ofDestination.undo(source)
      await this.#migration.compare()
    }
  }

  async stop(): Promise<void> {
    this.#instances.end()
    this.#stopped.abort()
    // Polling ends first, because it starts the destination's client.
    await this.#watching
    await Promise.all([this.#ofSource.stop(), this.#ofDestination.stop()])
    await this.#faults.catch(() => {})
  }
}

async function within(what: string, holds: () => boolean): Promise<void> {
  const deadline = performance.now() + writableMS
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`not within ${writableMS} ms: ${what}`)
    await sleep(10)
  }
}
