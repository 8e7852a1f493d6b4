import type { Document } from 'mongodb'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, ranOutOfTime } from '../mongo/errors.ts'
import { rawSequence } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'

/** The target of a write. Name *and* UUID prevent a delayed write from changing or creating another collection. */
export interface CollectionTarget {
  database: string
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
}

export interface StatementError {
  command: Verb
  /** Index of the statement. */
  index: number
  code: number
  message: string
  /**
   * For a duplicate key: true when an index other than the one on `_id` refused the document (`keyPattern`, reported
   * since 4.4). Null when the reply does not name the index. The `_id` may then exist or not.
   */
  ofOtherIndex: boolean | null
}

/**
 * Limits of one command. The server accepts 100,000 statements in 48 MB; smaller commands reduce latency and memory.
 */
const statementsMax = 5_000
const bytesMax = 6 * 1024 * 1024

export type Verb = 'insert' | 'update' | 'delete'
const sequenceField = { insert: 'documents', update: 'updates', delete: 'deletes' } as const

/**
 * Sends raw, unordered statements in as many sequential commands as their count and size require, and returns the
 * statements that failed. Validators are bypassed, because the source has already accepted the documents. A top-level
 * Timestamp(0, 0) is preserved (`bypassEmptyTsReplacement`, 6.0.17 and later).
 * Throws when a whole command fails. The caller retries transient errors, which is safe because every statement is
 * idempotent.
 * @param counted called with the number of documents that each command has affected
 */
export async function writeStatements(
  cluster: Cluster,
  target: CollectionTarget,
  verb: Verb,
  statements: Buffer[],
  counted: (affected: number) => void = () => {},
): Promise<StatementError[]> {
  const failed: StatementError[] = []
  let from = 0
  while (from < statements.length) {
    let to = from
    let bytes = 0
    while (to < statements.length && to - from < statementsMax) {
      bytes += (statements[to] as Buffer).length
      if (bytes > bytesMax && to > from) break
      to += 1
    }
    failed.push(...(await send(cluster, target, verb, statements, from, to, counted)))
    from = to
  }
  return failed
}

/**
 * Sends the statements [from, to) in one command. A batch is halved and sent again when it is too large for the
 * destination's cache (error 388), when its reply would be too large, or when it exceeds the time limit, for example
 * because its documents are large and not cached. A single statement that fails is returned or thrown.
 */
async function send(
  cluster: Cluster,
  target: CollectionTarget,
  verb: Verb,
  statements: Buffer[],
  from: number,
  to: number,
  counted: (affected: number) => void,
): Promise<StatementError[]> {
  const halves = async (): Promise<StatementError[]> => {
    const middle = (from + to) >> 1
    const left = await send(cluster, target, verb, statements, from, middle, counted)
    return left.concat(await send(cluster, target, verb, statements, middle, to, counted))
  }
  let reply: Document
  try {
    reply = await cluster.write(target.database, commandOf(target, verb, statements, from, to))
  } catch (error) {
    if (to - from > 1 && (ranOutOfTime(error) || tooLarge.has(codeOf(error) ?? 0))) return await halves()
    // The server has rejected the message itself, because this statement is too large.
    if (to - from === 1 && codeOf(error) === code.objectTooLarge) {
      return [failureOf(verb, { code: code.objectTooLarge, index: 0, errmsg: (error as Error).message }, from)]
    }
    throw error
  }
  const errors = (reply['writeErrors'] ?? []) as WriteError[]
  if (to - from > 1 && errors.some((error) => tooLarge.has(error.code))) return await halves()
  counted(Number(reply['n'] ?? 0))
  return errors.map((error) => failureOf(verb, error, from + error.index))
}

/**
 * Sends one update that is not an upsert. Returns null when it matched a document, its error when the server refused
 * it, and 'unmatched' otherwise. Throws as `writeStatements` does.
 */
export async function updateExisting(
  cluster: Cluster,
  target: CollectionTarget,
  statement: Buffer,
): Promise<StatementError | 'unmatched' | null> {
  const reply = await cluster.write(target.database, commandOf(target, 'update', [statement], 0, 1))
  const [failed] = (reply['writeErrors'] ?? []) as WriteError[]
  if (failed) return failureOf('update', failed, 0)
  return reply['n'] === 1 ? null : 'unmatched'
}

function commandOf(target: CollectionTarget, verb: Verb, statements: Buffer[], from: number, to: number): Document {
  return {
    [verb]: target.name,
    [sequenceField[verb]]: rawSequence(sequenceField[verb], statements, from, to),
    collectionUUID: toUuid(target.uuid),
    ordered: false,
    ...(verb === 'delete' ? {} : { bypassDocumentValidation: true, bypassEmptyTsReplacement: true }),
  }
}

function failureOf(command: Verb, { code, errmsg, keyPattern }: WriteError, index: number): StatementError {
  const ofOtherIndex = keyPattern === undefined ? null : Object.keys(keyPattern).join() !== '_id'
  return { command, index, code, message: errmsg ?? '', ofOtherIndex }
}

interface WriteError {
  index: number
  code: number
  errmsg?: string
  keyPattern?: Document
}

const tooLarge = new Set<number>([
  code.transactionTooLargeForCache,
  code.objectTooLarge, // the error of a reply that is too large because many statements failed
  17280,
])
