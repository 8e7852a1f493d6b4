import { setTimeout as sleep } from 'node:timers/promises'
import { admitWrites, finishIndexes, prepareToWrite } from '../commit/finish-commit.ts'
import { applyLateDeletes } from '../commit/late-changes.ts'
import { blocksDestination, setWriteBlocking } from '../commit/write-blocking.ts'
import type { Coordination } from '../coordination/coordination.ts'
import type { Team } from '../coordination/team.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { appendNote } from '../mongo/listing.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Replication } from './replication.ts'
import type { SharedReplication } from './shared-replication.ts'
import type { Verification } from './verification.ts'
import type { WorkRuns } from './work-runs.ts'

const verifierPollMS = 50
/** So many take a while to apply, and more expire meanwhile: they are looked for again before the verifier comes to them. */
const manyExpired = 10_000

export interface CommitStepsParts {
  source: Cluster
  configuration: StartConfiguration
  context: RetryContext
  coordination: Coordination
  team: Team
  verification: Verification
  runs: WorkRuns
  replication: SharedReplication
  /** Resolves when this process holds its instance's lease and knows who coordinates. */
  lead: () => Promise<void>
  /** Everything up to this time is on the destination. */
  applied: (time: ClusterTime) => void
  atStep: (step: string) => void
}

/** What each step of a commit does here, whether this instance coordinates or waits; and the repair between two attempts. */
export class CommitSteps {
  readonly #parts: CommitStepsParts
  /** The source is known to have done nothing between the commit point and this time but let documents expire. */
  #quietUntil: ClusterTime = 0n
  /** The attempt to commit that this instance takes part in. */
  #attempt = 0
  #loadedFor = -1

  constructor(parts: CommitStepsParts) {
    this.#parts = parts
  }

  /** Blocks the source if asked for and fixes the time up to which events are applied; for an instance that does not lead, waits. */
  commitPoint(left: AbortSignal): Promise<string> {
    return this.#parts.team
      .commitPoint(() => this.#takeCommitPoint(), left)
      .then(({ attempt, point }) => {
        this.#attempt = attempt
        return point
      })
  }

  async #takeCommitPoint(): Promise<string> {
    const { source, configuration, context } = this.#parts
    if (configuration.enableUserWriteBlocking === 'sourceAndDestination') {
      this.#parts.atStep('blockSource')
      await retry('blocking writes on the source', context, () => setWriteBlocking(source, true))
    }
    this.#parts.atStep('commitPoint')
    await retry('taking the commit point', context, () => appendNote(source, 'commit'))
    const point = source.latest.toString()
    // Events are applied until the stream has passed the point; on a quiet source this is what it passes it by.
    await retry('taking the commit point', context, () => appendNote(source, 'after commit'))
    return point
  }

  prepareToWrite(left: AbortSignal): Promise<void> {
    const { configuration, context, coordination, team, verification, runs } = this.#parts
    return runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      // Nothing is applied here any more; whoever finishes the commit takes all of it.
      if (!coordination.leading) await coordination.yieldAll()
      const prepare = async (): Promise<void> => {
        await team.alone(runs.signal)
        const replication = await this.#loadFor(this.#attempt)
        await this.#refuseUntold(replication)
        await retry('following views', context, () => replication.commit.definitions.followUntoldViews())
        await verification.checkDefinitions(configuration, 'heldBack')
        await prepareToWrite(replication.commit)
      }
      await team.step('prepared', this.#attempt, prepare, runs.signal)
    })
  }

  /** Both clusters hold the same, and the source is quiet. Throws FatalError VerificationFailed or SourceWritten. */
  verdict(commitPoint: ClusterTime, left: AbortSignal): Promise<void> {
    const { team, runs } = this.#parts
    return runs.finish(left, () => team.step('verified', this.#attempt, () => this.#speak(commitPoint), runs.signal))
  }

  async #speak(commitPoint: ClusterTime): Promise<void> {
    const { configuration, team, verification, runs } = this.#parts
    await team.alone(runs.signal)
    await this.#loadFor(this.#attempt)
    this.#parts.applied(commitPoint)
    this.#parts.atStep('verify')
    // Before the verifier's last look: what changes on the destination after it belongs to the way back.
    this.#parts.atStep('reversePosition')
    await this.finishing.commit.reversePosition?.take()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(this.finishing.commit, since)
      this.#quietUntil = until
      // The verifier holds what expired until it may compare it, and reads no further once it holds too much.
      this.#parts.applied(until)
      return expired
    }
    let since = commitPoint
    while ((await applyLate(since)) >= manyExpired) since = this.#quietUntil
    // Of who has just been elected it begins beside this.
    while (configuration.verification.enabled && !verification.running) {
      if (runs.signal.aborted) throw new StoppedError()
      await sleep(verifierPollMS)
    }
    await verification.settle(configuration, () => applyLate(this.#quietUntil))
  }

  /** A last look at the source, then writes are allowed on the destination. */
  admit(commitPoint: ClusterTime, left: AbortSignal): Promise<void> {
    const { configuration, team, verification, runs } = this.#parts
    return runs.finish(left, () => {
      const admit = async (): Promise<void> => {
        await team.alone(runs.signal)
        await this.#loadFor(this.#attempt)
        const since = laterOf(commitPoint, this.#quietUntil)
        await applyLateDeletes(this.finishing.commit, since)
        await this.#refuseUntold(this.finishing)
        // From here on users write on the destination, and that is no difference any more.
        await verification.end()
        if (left.aborted) throw new StoppedError()
        await admitWrites(this.finishing.commit, blocksDestination(configuration))
      }
      return team.step('canWrite', this.#attempt, admit, runs.signal)
    })
  }

  /** Of a source older than 6.0, whose change stream does not tell of every definition. */
  async #refuseUntold({ commit }: Replication): Promise<void> {
    await retry('looking for changed definitions', this.#parts.context, () => commit.definitions.refuseUntold(true))
  }

  finishIndexes(left: AbortSignal): Promise<void> {
    const { team, runs } = this.#parts
    return runs.finish(left, async () => {
      runs.renew()
      await this.#parts.lead()
      const convert = async (): Promise<void> => finishIndexes((await this.#parts.replication.load()).commit)
      await team.step('committed', this.#attempt, convert, runs.signal)
    })
  }

  /** Makes what the last verdict named equal again, from the source. Returns how many documents were looked at. */
  async repair(): Promise<number> {
    const { coordination, verification, runs } = this.#parts
    await runs.ended
    runs.renew()
    await this.#parts.lead()
    // One instance's work: the coordinator's.
    if (!coordination.leading) return 0
    const replication = await this.#parts.replication.load()
    await replication.holdBack()
    return await replication.repair(verification.store)
  }

  /** What a commit works on: loaded when it began to finish. */
  get finishing(): Replication {
    const { latest } = this.#parts.replication
    if (!latest) throw new FatalError('InternalError', 'a commit that finishes before it began')
    return latest
  }

  /** Loads once for each attempt to commit: a predecessor in office may have changed what this instance saw last. */
  async #loadFor(attempt: number): Promise<Replication> {
    if (!this.#parts.replication.latest || this.#loadedFor !== attempt) await this.#parts.replication.load()
    this.#loadedFor = attempt
    return this.finishing
  }
}
