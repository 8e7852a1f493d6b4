import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { errorStack, errorText } from '../domain/error-text.ts'
import { RefusedError } from '../domain/errors.ts'
import type { PeerAnswer, PeerAnswers, PeerCommand } from '../domain/peer-command.ts'
import { redactUris } from '../domain/uri-rules.ts'
import type { Addressee, CommandRecord, CommandStore, GivenCommand } from '../mongo/command-store.ts'
import { isTransient } from '../mongo/errors.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Liveness } from './liveness.ts'

/** What is needed of the sync that an instance takes part in. */
export interface CommandedWork {
  commands: CommandStore
  liveness: Pick<Liveness, 'instances'>
  record: { generation: number }
}

export interface TeamCommandsParts extends Addressee {
  /** Null before there is a sync. */
  work: () => CommandedWork | null
  /** As if the command had come by this instance's own API. */
  perform: (given: GivenCommand) => Promise<void>
  context: RetryContext
  /** For how long a command may be taken, and is waited for; ms. */
  patienceMS?: number
}

const pollMS = 200

/**
 * Passes commands on to all instances, which do not reach each other: through the metadata database, where each looks
 * once a second. A command is for the processes that were alive when it was given, and each performs it at most once: one
 * that was started later, or comes back after it was answered for, does not.
 */
export class PeerCommands {
  readonly #parts: TeamCommandsParts
  readonly #patienceMS: number
  #looking: Promise<void> | null = null

  constructor(parts: TeamCommandsParts) {
    this.#parts = parts
    this.#patienceMS = parts.patienceMS ?? 30_000
  }

  /** Begins what was given to this instance since it looked last. One look at a time. */
  look(): void {
    this.#looking ??= this.#look()
      .catch((error) => this.#parts.context.onRetry?.('looking for commands', error))
      .finally(() => {
        this.#looking = null
      })
  }

  /** Resolves when all who are alive have answered, and after the patience at the latest. */
  async give(given: GivenCommand): Promise<PeerAnswers> {
    const work = this.#parts.work()
    if (!work) {
      throw new RefusedError('WrongState', 'this instance takes no part in a sync; send the command to one that does')
    }
    const to = await this.#alive(work)
    try {
      const record = await this.#give(work, given, to)
      return new Map(to.map((one) => [one.id, record.answers.get(one.incarnation) ?? this.#silent(one, record)]))
    } catch (cause) {
      if (!isTransient(cause)) throw cause
      const description = `the destination does not answer: some instances may have got the ${given.command}, see their states`
      throw new RefusedError('ClusterUnreachable', description, { cause })
    }
  }

  async #give(work: CommandedWork, given: GivenCommand, to: readonly Addressee[]): Promise<CommandRecord> {
    const { commands, record } = work
    const id = randomUUID()
    try {
      await commands.give(id, given, record.generation, to)
      await this.#answered(work, id, to)
    } finally {
      // Whoever has not taken it by now never does: what is answered of them here stays true.
      await commands.close(id)
    }
    const answered = await commands.read(id)
    await commands.remove(id)
    return answered
  }

  async #alive(work: CommandedWork): Promise<Addressee[]> {
    const { id, incarnation } = this.#parts
    const others = (await work.liveness.instances()).filter((one) => one.alive && one.id !== id)
    const all = [{ id, incarnation }, ...others.map((one) => ({ id: one.id, incarnation: one.incarnation }))]
    return all.sort((one, other) => (one.id < other.id ? -1 : 1))
  }

  async #answered(work: CommandedWork, id: string, to: readonly Addressee[]): Promise<void> {
    const deadline = performance.now() + this.#patienceMS
    while (performance.now() < deadline && !this.#parts.context.signal.aborted) {
      this.look()
      const record = await work.commands.read(id).catch(() => null) // as while a primary is elected
      const silent = to.filter(({ incarnation }) => !record?.answers.has(incarnation))
      if (silent.length === 0 || silent.every(await this.#gone(work))) return
      await sleep(pollMS)
    }
  }

  /** Who has died since, or was started anew. Whoever the store has never heard of is waited for: it may have been emptied. */
  async #gone(work: CommandedWork): Promise<(one: Addressee) => boolean> {
    const seen = new Map((await work.liveness.instances().catch(() => [])).map((row) => [row.id, row]))
    return ({ id, incarnation }) => {
      const row = seen.get(id)
      return row !== undefined && id !== this.#parts.id && !(row.alive && row.incarnation === incarnation)
    }
  }

  #silent({ incarnation }: Addressee, { taken }: CommandRecord): PeerAnswer {
    const seconds = Math.round(this.#patienceMS / 1_000)
    const errorDescription = taken.has(incarnation)
      ? `has taken the command and was not done with it within ${seconds} seconds; see its progress`
      : 'has not taken the command, and will not any more; see whether it is alive, then send it again'
    return { success: false, error: 'NoAnswer', errorDescription }
  }

  async #look(): Promise<void> {
    const work = this.#parts.work()
    const { incarnation, context } = this.#parts
    if (!work || context.signal.aborted) return
    for (const { id, given } of await work.commands.waiting(incarnation, work.record.generation)) {
      if (!(await work.commands.take(id, incarnation, this.#patienceMS))) continue
      // Another sync by now, where it means something else.
      if (this.#parts.work() !== work) return
      // Not awaited: a pause may take long, and what is given meanwhile is not for after it. It never rejects.
      void this.#perform(work.commands, id, given)
    }
  }

  async #perform(commands: CommandStore, id: string, given: GivenCommand | null): Promise<void> {
    const { perform, incarnation, context } = this.#parts
    const performed = async (): Promise<PeerAnswer> => {
      if (given === null) throw new UnknownCommandError(id)
      await perform(given)
      return { success: true }
    }
    const answer = await performed().catch((error) => this.#refusal(error, given?.command ?? null))
    await retry('answering a command', context, () => commands.answer(id, incarnation, answer)).catch((error) =>
      context.onRetry?.('answering a command', error),
    )
  }

  /** @param command null: one that this release does not know */
  #refusal(error: unknown, command: PeerCommand | null): PeerAnswer {
    if (error instanceof RefusedError) {
      return { success: false, error: error.refusal, errorDescription: redactUris(error.message) }
    }
    // Nothing tries it again. What a process that stops leaves off is no failure.
    const { context } = this.#parts
    if (!context.signal.aborted) {
      context.journal?.('command failed', { command, error: errorStack(error) ?? errorText(error) })
    }
    if (error instanceof UnknownCommandError) {
      return { success: false, error: 'InvalidRequest', errorDescription: error.message }
    }
    // Its message may hold anything, so it is for the log only.
    const errorDescription = 'met an unexpected error; its log tells which'
    return { success: false, error: 'InternalError', errorDescription }
  }
}

/** Never by its name: the record may have been stored by anybody who may write to the metadata database. */
class UnknownCommandError extends Error {
  constructor(id: string) {
    super(
      `tandem_internal.commands holds a record whose command this release does not know (_id ${id}); it is not performed`,
    )
    this.name = 'UnknownCommandError'
  }
}
