import type { Document } from 'mongodb'
import * as v from 'valibot'
import { refusalNames } from '../domain/errors.ts'
import { type GivenCommand, type PeerAnswer, peerCommands } from '../domain/peer-command.ts'
import type { Cluster } from './cluster.ts'
import { ageMS, currentClusterTime } from './cluster-age.ts'
import { UnfencedMetadata } from './unfenced-metadata.ts'

const collection = 'commands'
const schemaVersion = 1
/** Time limit of a database command, by the client's clock. */
const timeoutMS = 5_000
/** Commands older than this are removed by the next sender: an instance that crashed may have left them behind. */
const keepMS = 10 * 60_000

const patternSchema = v.object({ pattern: v.string(), options: v.exactOptional(v.string()) })
/** The order of the fields is that of the API, because filters are compared as JSON text. */
const filtersSchema = v.nullable(
  v.array(
    v.object({
      database: v.exactOptional(v.string()),
      databaseRegex: v.exactOptional(patternSchema),
      collections: v.exactOptional(v.array(v.string())),
      collectionsRegex: v.exactOptional(patternSchema),
    }),
  ),
)
const givenSchema = v.object({
  command: v.picklist(peerCommands),
  filter: v.exactOptional(
    v.object({ includeNamespaces: filtersSchema, excludeNamespaces: filtersSchema, dropExcluded: v.boolean() }),
  ),
  request: v.exactOptional(
    v.object({ dryRun: v.boolean(), maxSeconds: v.nullable(v.pipe(v.number(), v.integer(), v.minValue(1))) }),
  ),
  abortsBefore: v.exactOptional(v.nullable(v.pipe(v.number(), v.integer(), v.minValue(0)))),
})
/** An earlier release stores no sender. The limit is that of an instance's id. */
const senderSchema = v.fallback(v.nullable(v.pipe(v.string(), v.maxLength(256))), null)
const answerSchema = v.variant('success', [
  v.object({ success: v.literal(true) }),
  v.object({ success: v.literal(false), error: v.picklist(refusalNames), errorDescription: v.string() }),
])

/** A process that a command is sent to. */
export interface Addressee {
  /** mongosyncID. */
  id: string
  /** Identifies the process. It has hexadecimal digits only, so it can be a field name. */
  incarnation: string
}

/** A command that this process has not begun to execute. */
export interface WaitingCommand {
  id: string
  /**
   * Null when the stored document is not a command that this release knows. Any user with write access to the collection
   * can store such a document.
   */
  given: GivenCommand | null
  /** mongosyncID of the instance that passed the command on, as the stored command names it; null if it names none. */
  sender: string | null
}

export interface CommandRecord {
  /** Incarnations that have begun to execute the command. */
  taken: ReadonlySet<string>
  /** Answers by incarnation. */
  answers: ReadonlyMap<string, PeerAnswer>
}

/**
 * Commands that are passed on to all instances: collection `commands` of the metadata database. The server's clock
 * determines their age. Nothing here is fenced: a committed instance has no lease, and has to receive the reverse
 * command.
 *
 * All methods reject when the cluster does not answer within a few seconds.
 */
export class CommandStore {
  readonly #metadata: UnfencedMetadata

  constructor(destination: Cluster) {
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS })
  }

  /**
   * Stores a command for the given processes, and removes commands that are older than `keepMS`.
   * @param generation the generation of the sync: instances of another generation ignore the command
   * @param sender mongosyncID
   */
  async give(
    id: string,
    given: GivenCommand,
    generation: number,
    to: readonly Addressee[],
    sender: string,
  ): Promise<void> {
    const expired = { $expr: { $gt: [age, keepMS] } }
    await this.#write({ delete: collection, deletes: [{ q: expired, limit: 0 }] })
    const fields = { schemaVersion, ...given, generation, to, sender, closed: false, taken: {}, answers: {} }
    const u = { $set: fields, $currentDate: { givenAt: true, clusterTime: currentClusterTime } }
    await this.#write({ update: collection, updates: [{ q: { _id: id }, u, upsert: true }] })
  }

  /** Returns the open commands for this process that it has not begun to execute, oldest first. */
  async waiting(incarnation: string, generation: number): Promise<WaitingCommand[]> {
    const found = await this.#find(waitingFor(incarnation, generation), { sort: { givenAt: 1 } })
    return found.map(({ _id, command, request, filter, abortsBefore, sender }) => {
      const optional = { request, filter, abortsBefore }
      const set = Object.fromEntries(Object.entries(optional).filter(([, value]) => value !== undefined))
      const given = { command, ...set }
      const known = v.safeParse(givenSchema, given)
      return { id: _id as string, given: known.success ? known.output : null, sender: v.parse(senderSchema, sender) }
    })
  }

  /**
   * Records that this process executes the command. Returns true at most once per process, and only while the command
   * is open and younger than `withinMS`. If this rejects, the caller must not execute the command, even though it may
   * be recorded as taken.
   */
  async take(id: string, incarnation: string, withinMS: number): Promise<boolean> {
    const taken = `taken.${incarnation}`
    const q = { _id: id, closed: false, [taken]: { $exists: false }, $expr: { $lt: [age, withinMS] } }
    return (await this.#update(q, { $set: { [taken]: true } })) === 1
  }

  async answer(id: string, incarnation: string, answer: PeerAnswer): Promise<void> {
    await this.#update({ _id: id }, { $set: { [`answers.${incarnation}`]: answer } })
  }

  /** From now on no process can take the command. */
  async close(id: string): Promise<void> {
    await this.#update({ _id: id }, { $set: { closed: true } })
  }

  async read(id: string): Promise<CommandRecord> {
    const [found] = await this.#find({ _id: id }, { limit: 1 })
    const answers = new Map<string, PeerAnswer>()
    for (const [incarnation, answer] of Object.entries(found?.['answers'] ?? {})) {
      const known = v.safeParse(answerSchema, answer)
      if (known.success) answers.set(incarnation, known.output)
    }
    return { taken: new Set(Object.keys(found?.['taken'] ?? {})), answers }
  }

  async remove(id: string): Promise<void> {
    await this.#write({ delete: collection, deletes: [{ q: { _id: id }, limit: 1 }] })
  }

  /**
   * Reads all batches: records of commands that are too old stay for minutes, and must not hide the commands that were
   * stored after them.
   */
  async #find(filter: Document, extra: Document): Promise<Document[]> {
    return await this.#metadata.readAll({ find: collection, filter, ...extra })
  }

  /** Returns the number of changed documents. */
  async #update(q: Document, u: Document): Promise<number> {
    return (await this.#write({ update: collection, updates: [{ q, u }] }))['nModified'] as number
  }

  async #write(command: Document): Promise<Document> {
    const { reply, failed } = await this.#metadata.write(command)
    if (failed[0]) throw this.#metadata.refused(failed[0], command)
    return reply
  }
}

/** Returns the collection and a pipeline that finds a document if, and only if, `waiting` returns a command. */
export function anyWaiting(incarnation: string, generation: number): { collection: string; pipeline: Document[] } {
  const pipeline = [{ $match: waitingFor(incarnation, generation) }, { $limit: 1 }, { $project: { _id: 1 } }]
  return { collection, pipeline }
}

function waitingFor(incarnation: string, generation: number): Document {
  return {
    schemaVersion,
    generation,
    closed: false,
    'to.incarnation': incarnation,
    [`taken.${incarnation}`]: { $exists: false },
  }
}

/** Instances of earlier releases store `givenAt` only, and read it. */
const age = ageMS('$clusterTime', '$givenAt')
