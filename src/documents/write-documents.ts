import type { Document } from 'mongodb'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, ranOutOfTime } from '../mongo/errors.ts'
import { rawSequence } from '../mongo/raw-values.ts'
import { toUuid } from '../mongo/uuid.ts'

/** A collection as a write names it: by name *and* UUID, so that a late write never lands in, or re-creates, another. */
export interface CollectionTarget {
  database: string
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
}

export interface StatementError {
  /** Index into the statements given. */
  index: number
  code: number
  message: string
  /**
   * Of a duplicate key: the index that refused it is not that of `_id` (`keyPattern`, which servers give since 4.4). Null where
   * the answer does not say: the document may be refused by another index, and stand nowhere.
   */
  ofOtherIndex: boolean | null
}

/** A command's statements: the server takes at most 100,000 in 48 MB; small ones keep latency and memory low. */
const statementsMax = 5_000
const bytesMax = 6 * 1024 * 1024

type Verb = 'insert' | 'update' | 'delete'
const sequenceField = { insert: 'documents', update: 'updates', delete: 'deletes' } as const

/**
 * Sends raw statements unordered, in as many commands as count and bytes ask for, one after the other, and returns the
 * statements that failed. Validators are bypassed (the source judged the documents already) and top-level
 * Timestamp(0, 0) is kept as it is (`bypassEmptyTsReplacement`, 6.0.17 and later).
 * Throws on errors of the whole command; passing ones are for the caller to retry, since every statement is idempotent.
 */
export async function writeStatements(
  cluster: Cluster,
  target: CollectionTarget,
  verb: Verb,
  statements: Buffer[],
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
    failed.push(...(await send(cluster, target, verb, statements, from, to)))
    from = to
  }
  return failed
}

/**
 * One command of statements [from, to). A batch that is too large for the destination's cache (388), whose reply would be too
 * large, or that does not end within its time limit (the limit is the command's, however many statements it has: cold documents
 * of megabytes), is halved until it passes; a single statement that still fails is the caller's.
 */
async function send(
  cluster: Cluster,
  target: CollectionTarget,
  verb: Verb,
  statements: Buffer[],
  from: number,
  to: number,
): Promise<StatementError[]> {
  const halves = async (): Promise<StatementError[]> => {
    const middle = (from + to) >> 1
    const left = await send(cluster, target, verb, statements, from, middle)
    return left.concat(await send(cluster, target, verb, statements, middle, to))
  }
  let reply: Document
  try {
    reply = await cluster.write(target.database, {
      [verb]: target.name,
      [sequenceField[verb]]: rawSequence(sequenceField[verb], statements, from, to),
      collectionUUID: toUuid(target.uuid),
      ordered: false,
      ...(verb === 'delete' ? {} : { bypassDocumentValidation: true, bypassEmptyTsReplacement: true }),
    })
  } catch (error) {
    if (to - from > 1 && (ranOutOfTime(error) || tooLarge.has(codeOf(error) ?? 0))) return await halves()
    throw error
  }
  const errors = (reply['writeErrors'] ?? []) as WriteError[]
  if (to - from > 1 && errors.some((error) => tooLarge.has(error.code))) return await halves()
  return errors.map((error) => ({
    index: from + error.index,
    code: error.code,
    message: error.errmsg ?? '',
    ofOtherIndex: error.keyPattern === undefined ? null : Object.keys(error.keyPattern).join() !== '_id',
  }))
}

interface WriteError {
  index: number
  code: number
  errmsg?: string
  keyPattern?: Document
}

const tooLarge = new Set<number>([
  code.transactionTooLargeForCache,
  10334, // BSONObjectTooLarge: the reply to a batch of failures
  17280,
])
