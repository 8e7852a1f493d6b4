import { BSON, type ClientSession, ReadPreference } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { NaturalRead } from '../domain/natural-order.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { CollectionToRead } from '../mongo/collection-name.ts'
import { code, codeOf, TransientReplyError } from '../mongo/errors.ts'
import type { RawBatch, RawCursor } from '../mongo/raw-cursor.ts'
import { stayAtOneMember } from '../mongo/same-server.ts'
import { openNaturalIn } from './read-documents.ts'

/**
 * The codes with which a server rejects a resume token for a reason other than a deleted document. 8132701: the member
 * has run an initial sync since the token was made. 7738600: the record id of the token has another type than those of
 * the collection.
 */
const rejectsTokens = new Set<number | undefined>([code.badValue, code.failedToParse, 8132701, 7738600])

/**
 * A read of a whole collection of a replica set in natural order. It resumes by `$_resumeAfter` at the record id of a
 * token (`find_command.idl` in the server's source; mongod only, measured on 5.0.32 and 6.0.27).
 *
 * A record id belongs to one member: the members of a replica set have different record ids for one document, and a
 * member may assign others when it recovers after a crash or rolls back. A read that resumed with a record id of
 * another assignment would omit documents without an error. Therefore a read counts only if one process, in one term as
 * primary, has answered the whole read, including all resumptions. Within such a term record ids do not change: a primary
 * does not roll back, and a process recovers only when it starts. `server` identifies the process and its term. Each
 * resumption compares it with the server of the tokens, and `confirm` compares it again after the last batch.
 */
export class NaturalScan {
  /** Identifies the server that answers (`identityOf`). Null if the server does not identify itself. */
  readonly server: string | null
  /** True if the read continues at one of the given tokens, false if it starts at the beginning. */
  readonly resumed: boolean
  readonly #cursor: RawCursor

  private constructor(cursor: RawCursor, server: string | null, resumed: boolean) {
    this.#cursor = cursor
    this.server = server
    this.resumed = resumed
  }

  /**
   * Opens the read at the newest of the tokens that the server accepts. Starts at the beginning if they belong to
   * another server, or if the server accepts none.
   */
  static async open(
    cluster: Cluster,
    collection: CollectionToRead,
    notBefore: ClusterTime,
    batchSize: number,
    { server: expected, tokens }: Pick<NaturalRead, 'server' | 'tokens'>,
  ): Promise<NaturalScan> {
    let left = expected === null ? [] : [...tokens]
    for (;;) {
      const session = cluster.startSession()
      stayAtOneMember(session)
      const server = await serverOf(cluster, session).catch(async (error) => {
        await session.endSession()
        throw error
      })
      if (server !== expected) left = []
      const [token] = left
      try {
        const resumeAfter = token ? BSON.deserialize(token, { promoteLongs: false }) : null
        const cursor = await openNaturalIn(session, cluster, collection, notBefore, batchSize, resumeAfter)
        return new NaturalScan(cursor, server, token !== undefined)
      } catch (error) {
        if (!token) throw error
        if (codeOf(error) === code.keyNotFound) left.shift()
        else if (rejectsTokens.has(codeOf(error))) left = []
        else throw error
      }
    }
  }

  next(options: Parameters<RawCursor['next']>[0]): Promise<RawBatch | null> {
    return this.#cursor.next(options)
  }

  /**
   * Throws a transient error unless the server that answered the first batch has answered all of them. Then the next
   * read starts at the beginning, because the tokens belong to the former server.
   */
  async confirm(): Promise<void> {
    const server = identityOf(await this.#cursor.run('admin', { hello: 1 }))
    if (server === this.server) return
    throw new TransientReplyError('the primary of the source changed while a collection was read in natural order')
  }

  async close(): Promise<void> {
    await this.#cursor.close()
  }
}

async function serverOf(cluster: Cluster, session: ClientSession): Promise<string | null> {
  return identityOf(await cluster.read('admin', { hello: 1 }, { session, readPreference: ReadPreference.primary }))
}

/**
 * Returns a text that identifies the process and its term as primary. Each start of a process has a new
 * `topologyVersion.processId`, and each term a new `electionId`
 * (https://www.mongodb.com/docs/manual/reference/command/hello/).
 */
function identityOf(hello: Record<string, unknown>): string | null {
  const processId = (hello['topologyVersion'] as { processId?: unknown } | undefined)?.processId
  const electionId = hello['electionId']
  return processId && electionId ? `${processId} ${electionId}` : null
}
