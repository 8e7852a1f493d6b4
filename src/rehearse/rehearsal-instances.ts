import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../domain/progress.ts'
import { InstanceProcess } from './instance-process.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'

const pollMS = 200
/** A takeover must wait until a lease has expired. The rest of this time is for slow machines. */
const stepTimeoutMS = 300_000

type Answer = { success: boolean; progress?: Progress }

/** The instances of the rehearsal's sync, which are child processes. */
export class RehearsalInstances {
  readonly #uris: Record<'cluster0' | 'cluster1', string>
  readonly #signal: AbortSignal
  readonly #instances = new Map<string, InstanceProcess>()

  constructor(uris: Record<'cluster0' | 'cluster1', string>, signal: AbortSignal) {
    this.#uris = uris
    this.#signal = signal
  }

  /** Starts an instance. Resolves when the instance is connected to both clusters. */
  async launch(id: string): Promise<void> {
    const instance = new InstanceProcess(id, this.#uris)
    this.#instances.set(id, instance)
    await instance.listening(this.#signal)
    await this.until(`the instance ${id} is connected`, async () => (await instance.get<Answer>('progress')).success)
  }

  /** Kills an instance with SIGKILL. Resolves when it has ended. */
  async kill(id: string): Promise<void> {
    await this.#instances.get(id)?.kill()
    this.#instances.delete(id)
  }

  /**
   * Sends a command to all instances, and sends it again to an instance that cannot commit yet. An instance that has
   * just joined may say `canCommit` before it takes work over from the others, which it must have resumed to commit.
   * @throws RehearsalFailure if an instance refuses the command
   */
  async command(command: string, body: object = {}): Promise<void> {
    const isAccepted = async (one: InstanceProcess): Promise<boolean> => {
      const refusal = await one.post(command, body)
      if (refusal === null) return true
      if (refusal.error === 'CannotCommit') return false
      throw new RehearsalFailure(`${command} was refused: ${refusal.error}: ${refusal.errorDescription}`)
    }
    const all = [...this.#instances.values()]
    await Promise.all(all.map((one) => this.until(`${one.id} accepts ${command}`, () => isAccepted(one))))
  }

  /** Returns the progress of all instances that report it. @throws RehearsalFailure if the sync has failed */
  async progress(): Promise<Progress[]> {
    const answers = await Promise.all([...this.#instances.values()].map((one) => one.get<Answer>('progress')))
    const all = answers.flatMap(({ progress }) => (progress ? [progress] : []))
    const failed = all.find(({ state }) => state === 'FAILED')
    if (!failed) return all
    const { error, errorDescription } = failed.failure ?? {}
    throw new RehearsalFailure(`the sync failed: ${error}: ${errorDescription}`)
  }

  /**
   * Returns true if every instance reports progress for which `holds` returns true.
   * @param observe receives the progress of all instances that report it, before `holds` is called
   */
  async every(holds: (one: Progress) => boolean, observe?: (all: readonly Progress[]) => void): Promise<boolean> {
    const all = await this.progress()
    observe?.(all)
    // An instance that does not reach a cluster, for example during an election, reports no progress.
    return all.length === this.#instances.size && all.every(holds)
  }

  /** Waits until `every` returns true. */
  async untilEvery(what: string, ...condition: Parameters<RehearsalInstances['every']>): Promise<void> {
    await this.until(what, () => this.every(...condition))
  }

  /** @throws RehearsalFailure if an instance has ended, or if the condition does not hold in time */
  async until(what: string, holds: () => Promise<boolean>): Promise<void> {
    const deadline = performance.now() + stepTimeoutMS
    while (!(await this.#unlessEnded(holds))) {
      if (performance.now() > deadline) throw new RehearsalFailure(`waited ${stepTimeoutMS / 1_000} s for: ${what}`)
      await sleep(pollMS, undefined, { signal: this.#signal })
    }
  }

  /** Ends all instances. */
  async stop(): Promise<void> {
    await Promise.all([...this.#instances.values()].map((one) => one.stop()))
  }

  /** Runs `run`. Throws RehearsalFailure if an instance has ended, instead of the error of a request to that instance. */
  async #unlessEnded<T>(run: () => Promise<T>): Promise<T> {
    const [result] = await Promise.allSettled([run()])
    for (const one of this.#instances.values()) {
      if (!one.isRunning) throw new RehearsalFailure(`the instance ${one.id} has ended:\n${one.lastLines}`)
    }
    if (result.status === 'rejected') throw result.reason
    return result.value
  }
}
