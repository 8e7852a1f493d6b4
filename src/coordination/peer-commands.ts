import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Document } from 'mongodb'
import { errorStack, errorText, unreachableText } from '../domain/error-text.ts'
import { RefusedError } from '../domain/errors.ts'
import type { GivenCommand, PeerAnswer, PeerAnswers, PeerCommand } from '../domain/peer-command.ts'
import { redactUris } from '../domain/uri-rules.ts'
import {
  type Addressee,
  anyWaiting,
  type CommandRecord,
  type CommandStore,
  type WaitingCommand,
} from '../mongo/command-store.ts'
import { isTransient } from '../mongo/errors.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Liveness } from './liveness.ts'
import type { RoundPart } from './round-parts.ts'

/** The parts of a session that this class uses. */
export interface CommandedSession {
  commands: CommandStore
  liveness: Pick<Liveness, 'instances'>
  record: { generation: number }
}

export interface PeerCommandsParts extends Addressee {
  /** Its session is null before the sync exists. */
  current: { readonly session: CommandedSession | null }
  /**
   * Performs the command as if it had arrived through this instance's own API.
   * @param sender mongosyncID of the instance that passed the command on; null if the command's record has none
   */
  perform: (given: GivenCommand, sender: string | null) => Promise<void>
  context: RetryContext
  /** The age of a command up to which an instance may begin it, and how long the sender waits for the answers, ms. */
  patienceMS?: number
}

const pollMS = 200
/** If a round of the coordination has looked for commands within this time, `pollIfDue` does not, ms. */
const recentMS = 1_500

/**
 * Passes commands on to all instances. Instances do not connect to each other, so commands go through the metadata
 * database, which each instance reads once a second, usually in a round of the coordination. A command is for the processes that were alive when it was stored,
 * and each of them performs it at most once. A process that starts later, or polls after the command was closed, does
 * not perform it.
 */
export class PeerCommands {
  readonly #parts: PeerCommandsParts
  readonly #patienceMS: number
  #polling: Promise<void> | null = null
  #readInRoundAt = Number.NEGATIVE_INFINITY

  constructor(parts: PeerCommandsParts) {
    this.#parts = parts
    this.#patienceMS = parts.patienceMS ?? 30_000
  }

  /** Begins the commands that were stored for this instance since the last poll. Only one poll runs at a time. */
  poll(): void {
    this.#polling ??= this.#poll()
      .catch((error) => this.#parts.context.onRetry?.('polling for commands', error))
      .finally(() => {
        this.#polling = null
      })
  }

  /** Called once a second. Polls unless a round of the coordination has just looked for commands. */
  pollIfDue(): void {
    if (performance.now() - this.#readInRoundAt > recentMS) this.poll()
  }

  /** Looks for commands in each round of this session's coordination, and polls when there is one. */
  inRounds(session: CommandedSession): RoundPart {
    const take = (found: Document[]): void => {
      if (this.#parts.current.session !== session) return
      this.#readInRoundAt = performance.now()
      if (found.length > 0) this.poll()
    }
    return { ...anyWaiting(this.#parts.incarnation, session.record.generation), take }
  }

  /**
   * Passes the command on. Resolves when all live instances have answered, and after `patienceMS` at the latest. Throws
   * RefusedError WrongState when this instance takes no part in a sync, and ClusterUnreachable when the destination
   * does not answer.
   */
  async give(given: GivenCommand): Promise<PeerAnswers> {
    const session = this.#parts.current.session
    if (!session) {
      throw new RefusedError('WrongState', 'this instance takes no part in a sync; send the command to one that does')
    }
    const to = await this.#alive(session)
    try {
      const record = await this.#give(session, given, to)
      return new Map(to.map((one) => [one.id, record.answers.get(one.incarnation) ?? this.#silent(one, record)]))
    } catch (cause) {
      if (!isTransient(cause)) throw cause
      const description = `${unreachableText(cause)}: some instances may have received the ${given.command}; see their states`
      throw new RefusedError('ClusterUnreachable', description, { cause })
    }
  }

  async #give(session: CommandedSession, given: GivenCommand, to: readonly Addressee[]): Promise<CommandRecord> {
    const { commands, record } = session
    const id = randomUUID()
    try {
      await commands.give(id, given, record.generation, to, this.#parts.id)
      await this.#answered(session, id, to)
    } finally {
      // From now on no instance can take the command, so the answer `NoAnswer` for an instance stays true.
      await commands.close(id)
    }
    const answered = await commands.read(id)
    await commands.remove(id)
    return answered
  }

  async #alive(session: CommandedSession): Promise<Addressee[]> {
    const { id, incarnation } = this.#parts
    const others = (await session.liveness.instances()).filter((one) => one.alive && one.id !== id)
    const all = [{ id, incarnation }, ...others.map((one) => ({ id: one.id, incarnation: one.incarnation }))]
    return all.sort((one, other) => (one.id < other.id ? -1 : 1))
  }

  async #answered(session: CommandedSession, id: string, to: readonly Addressee[]): Promise<void> {
    const deadline = performance.now() + this.#patienceMS
    while (performance.now() < deadline && !this.#parts.context.signal.aborted) {
      this.poll()
      const record = await session.commands.read(id).catch(() => null) // fails while a primary is elected, for example
      const silent = to.filter(({ incarnation }) => !record?.answers.has(incarnation))
      if (silent.length === 0 || silent.every(await this.#gone(session))) return
      await sleep(pollMS)
    }
  }

  /**
   * Returns a test for instances that have stopped or restarted since the command was stored. It is false for an
   * instance without a row in the store, because the store may have been flushed.
   */
  async #gone(session: CommandedSession): Promise<(one: Addressee) => boolean> {
    const observed = new Map((await session.liveness.instances().catch(() => [])).map((row) => [row.id, row]))
    return ({ id, incarnation }) => {
      const row = observed.get(id)
      return row !== undefined && id !== this.#parts.id && !(row.alive && row.incarnation === incarnation)
    }
  }

  #silent({ incarnation }: Addressee, { taken }: CommandRecord): PeerAnswer {
    const seconds = Math.round(this.#patienceMS / 1_000)
    const errorDescription = taken.has(incarnation)
      ? `picked up the command and did not finish it within ${seconds} seconds; see its progress`
      : 'did not pick up the command in time and will not perform it; send it again if the instance is alive'
    return { success: false, error: 'NoAnswer', errorDescription }
  }

  async #poll(): Promise<void> {
    const session = this.#parts.current.session
    const { incarnation, context } = this.#parts
    if (!session || context.signal.aborted) return
    for (const waiting of await session.commands.waiting(incarnation, session.record.generation)) {
      if (!(await session.commands.take(waiting.id, incarnation, this.#patienceMS))) continue
      if (this.#parts.current.session !== session) {
        // The command was for `session`, which this instance has left in the meantime.
        const errorDescription =
          'the instance left the session that the command was meant for and did not perform it; send the command again'
        void this.#answer(session.commands, waiting.id, { success: false, error: 'WrongState', errorDescription })
        return
      }
      // This is not awaited, because later commands must not wait for a long pause. `#perform` never rejects.
      void this.#perform(session.commands, waiting)
    }
  }

  async #perform(commands: CommandStore, { id, given, sender }: WaitingCommand): Promise<void> {
    const { perform } = this.#parts
    const performed = async (): Promise<PeerAnswer> => {
      if (given === null) throw new UnknownCommandError(id)
      await perform(given, sender)
      return { success: true }
    }
    const answer = await performed().catch((error) => this.#refusal(error, given?.command ?? null))
    await this.#answer(commands, id, answer)
  }

  /** Never rejects. */
  async #answer(commands: CommandStore, id: string, answer: PeerAnswer): Promise<void> {
    const { incarnation, context } = this.#parts
    await retry('answering a command', context, () => commands.answer(id, incarnation, answer)).catch((error) =>
      context.onRetry?.('answering a command', error),
    )
  }

  /** @param command null for a command that this release does not know */
  #refusal(error: unknown, command: PeerCommand | null): PeerAnswer {
    if (error instanceof RefusedError) {
      return { success: false, error: error.refusal, errorDescription: redactUris(error.message) }
    }
    // The command is not tried again. If this process stops and thereby interrupts the command, nothing is logged.
    const { context } = this.#parts
    if (!context.signal.aborted) {
      context.journal?.('command failed', { command, error: errorStack(error) ?? errorText(error) })
    }
    if (error instanceof UnknownCommandError) {
      return { success: false, error: 'InvalidRequest', errorDescription: error.message }
    }
    // The message may contain any text, so it goes to the log only.
    const errorDescription =
      'met an unexpected error while it carried out the command; its log line "command failed" has the cause. Read its progress before you send the command again'
    return { success: false, error: 'InternalError', errorDescription }
  }
}

/**
 * Does not quote the command, because any user with write access to the metadata database may have stored the record.
 */
class UnknownCommandError extends Error {
  constructor(id: string) {
    super(
      `the collection commands of the metadata database holds a record whose command this release does not know (_id ${id}); it is not performed`,
    )
    this.name = 'UnknownCommandError'
  }
}
