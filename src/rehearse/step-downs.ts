import { setTimeout as sleep } from 'node:timers/promises'
import { type Document, MongoClient, MongoError } from 'mongodb'
import { errorText } from '../domain/error-text.ts'
import { shardUri } from '../domain/shard-uri.ts'
import { clientOptions, type RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'

/** Time limit of one step-down, from the first attempt until a member of the set is primary. */
const electionTimeoutMS = 60_000
const pollMS = 20
const attemptPauseMS = 500

/**
 * The shortest period in which the server does not elect the same member again. In a set whose other members cannot
 * become primary, that member is the only candidate. `force` is needed because no other member can catch up.
 */
const alone = { replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true }
/**
 * Without `force`, the primary steps down only if a member that can become primary has caught up in time.
 * https://www.mongodb.com/docs/manual/reference/command/replSetStepDown/
 */
const besideOthers = { replSetStepDown: 20, secondaryCatchUpPeriodSecs: 10 }

const action = 'replSetStateChange'

export type SyncPhase = 'copy' | 'following'

/** One election that the rehearsal has caused. */
export interface StepDown {
  cluster: 'cluster0' | 'cluster1'
  /** Null for a replica set. */
  shard: string | null
  /** What the sync did when the primary was asked to step down. */
  during: SyncPhase
  /** The members that were primary before and after the election. They are equal in a set of one member. */
  from: string
  to: string
  /** Seconds from the command until a member was primary again. */
  seconds: number
}

/** A replica set whose primary can be made to step down: a cluster or a shard. */
interface Steppable {
  cluster: 'cluster0' | 'cluster1'
  shard: string | null
  client: MongoClient
  /** The time (`performance.now`) from which the member that has stepped down can be elected again; 0 before that. */
  electableAt: number
}

/** Makes the primary of each replica set of both clusters step down. */
export class StepDowns {
  readonly done: StepDown[] = []
  /** The shards that cannot be stepped down, each with the reason. */
  readonly omitted: string[] = []
  readonly #sets: Steppable[] = []
  readonly #opened: MongoClient[] = []

  /**
   * Finds the replica sets of the clusters. A shard to which no direct connection is possible is omitted.
   * @throws RehearsalFailure if the user of a replica set lacks the privilege
   */
  async prepare(clusters: readonly RehearsalCluster[]): Promise<void> {
    for (const { name: cluster, uri, client, shards } of clusters) {
      if (shards === null) await this.#add({ cluster, shard: null, client, electableAt: 0 })
      for (const { name: shard, host } of shards ?? []) {
        const direct = new MongoClient(shardUri(uri, host), clientOptions)
        this.#opened.push(direct)
        await this.#add({ cluster, shard, client: direct, electableAt: 0 }).catch((error) => {
          if (error instanceof RehearsalFailure) throw error
          this.omitted.push(`an election on ${nameOf({ cluster, shard })}: ${errorText(error)}`)
        })
      }
    }
  }

  /**
   * Steps the primary of each set down, one after the other. It waits first until the member that has stepped down in
   * an earlier round can be elected again. Otherwise a set of two members would have no candidate. When it returns or throws, the set has a primary again, or
   * has had none for a minute.
   * @param phase returns what the sync does at the moment
   */
  async round(phase: () => Promise<SyncPhase>, signal: AbortSignal, report: (line: string) => void): Promise<void> {
    for (const set of this.#sets) {
      await sleep(Math.max(0, set.electableAt - performance.now()), undefined, { signal })
      const found = await stepDown(set, await phase(), signal)
      this.done.push(found)
      report(stepDownLine(found))
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((one) => one.close()))
  }

  async #add(set: Steppable): Promise<void> {
    const { authInfo } = await set.client.db('admin').command({ connectionStatus: 1, showPrivileges: true })
    const isAllowed =
      authInfo.authenticatedUsers.length === 0 ||
      authInfo.authenticatedUserPrivileges.some(
        ({ resource, actions }: { resource: Document; actions: string[] }) =>
          (resource['cluster'] === true || resource['anyResource'] === true) && actions.includes(action),
      )
    if (!isAllowed) {
      throw new RehearsalFailure(
        `MissingPrivileges: --stepDowns needs the action ${action}, which the user on ${nameOf(set)} lacks; grant that action on the cluster (the role clusterManager contains it), or leave --stepDowns out`,
      )
    }
    this.#sets.push(set)
  }
}

/** Describes an election, for the terminal and for the report. */
export function stepDownLine({ during, from, to, seconds, ...set }: StepDown): string {
  const members = from === to ? `${to} is primary again` : `${from} was primary, then ${to}`
  const when = during === 'copy' ? 'during the copy' : 'while changes were followed'
  return `election on ${nameOf(set)} ${when} took ${seconds.toFixed(2)} s (${members})`
}

const nameOf = ({ cluster, shard }: { cluster: string; shard: string | null }): string =>
  shard === null ? cluster : `the shard ${shard} of ${cluster}`

async function stepDown(set: Steppable, during: SyncPhase, signal: AbortSignal): Promise<StepDown> {
  const deadline = performance.now() + electionTimeoutMS
  const before = await untilPrimary(set, deadline, () => true)
  const isNew = (primary: Document): boolean => !isSameElection(primary, before)
  const command = before['hosts'].length > 1 ? besideOthers : alone
  for (;;) {
    signal.throwIfAborted()
    const began = performance.now()
    const refusal = await set.client
      .db('admin')
      .command(command)
      .then(() => null)
      .catch((error: unknown) => error)
    // The connection may have been closed by the election itself, so an error does not mean that there was none.
    const primary = refusal === null ? null : await primaryOf(set)
    if (refusal === null || primary === null || isNew(primary)) {
      // This wait ignores `signal`, so that a rehearsal that is interrupted cleans up when there is a primary again.
      const after = await untilPrimary(set, deadline, isNew)
      const seconds = (performance.now() - began) / 1_000
      set.electableAt = performance.now() + command.replSetStepDown * 1_000
      const { cluster, shard } = set
      return { cluster, shard, during, from: String(before['me']), to: String(after['me']), seconds }
    }
    if (performance.now() > deadline) {
      throw new RehearsalFailure(`the primary of ${nameOf(set)} did not step down: ${errorText(refusal)}`)
    }
    await sleep(attemptPauseMS, undefined, { signal })
  }
}

/** Every election has another `electionId`, also if it elects the member that was primary before. */
const isSameElection = (one: Document, other: Document): boolean =>
  String(one['electionId']) === String(other['electionId'])

async function untilPrimary(
  set: Steppable,
  deadline: number,
  isExpected: (hello: Document) => boolean,
): Promise<Document> {
  for (;;) {
    const primary = await primaryOf(set)
    if (primary && isExpected(primary)) return primary
    if (performance.now() > deadline) {
      throw new RehearsalFailure(`${nameOf(set)} has had no primary for ${electionTimeoutMS / 1_000} s`)
    }
    await sleep(pollMS)
  }
}

/** Returns the answer of the primary to `hello`; null if there is none at the moment. */
async function primaryOf({ client }: Steppable): Promise<Document | null> {
  try {
    const hello = await client.db('admin').command({ hello: 1 })
    return hello['isWritablePrimary'] === true ? hello : null
  } catch (error) {
    if (error instanceof MongoError) return null
    throw error
  }
}
