import type { CommitRequest, LateWrites, Rehearsal } from '../domain/commit-request.ts'
import type { Failure } from '../domain/errors.ts'
import type { StoredDocuments } from '../mongo/stored-documents.ts'

/**
 * The steps of a commit that all instances wait for, in their order.
 *
 * `decided` is the point of no return: until it is stored a commit can be aborted or can fail, and nothing is open to users on the
 * destination. Once it is stored the commit only goes forward, whichever instance coordinates, and nothing on the destination
 * is made equal to the source again.
 */
export const commitSteps = ['none', 'point', 'prepared', 'verified', 'decided', 'canWrite', 'committed'] as const
export type CommitStep = (typeof commitSteps)[number]

/** How far the sync as a whole is: written by the coordinator, read by all. Any instance may store a request or an abort. */
export interface Stages {
  initialised: boolean
  /** After a reversal: the new destination is fit to be one. */
  adapted: boolean
  /** The verifier has compared everything once. */
  hashed: boolean
  /** Rises whenever the catalogue of collections was changed. */
  catalogue: number
  /** Number of the present attempt to commit; 0 before the first. */
  attempt: number
  step: CommitStep
  /** The coordinator's term in which the present attempt's last step was begun; a later term takes it over before it writes. */
  term: number
  /** Of the present attempt, as decimal digits. */
  commitPoint: string | null
  /** How often an attempt has failed so far. */
  failures: number
  failure: Failure | null
  /** The present attempt is over without a result: the coordinator failed, or died and came back, or the commit was aborted. */
  abandoned: boolean
  /** What an abandoned attempt had restored is held back again. */
  heldBack: boolean
  /** No attempt has come to allowing writes on the destination since it was first noted where a reversal would begin. */
  writesHeld: boolean
  /** What the commit that is under way was asked for, and when (ms of the asked instance's clock); null while there is none. */
  request: (CommitRequest & { at: number }) | null
  /** How many commits have been aborted, rehearsals included. */
  aborts: number
  /** For how many of them everything that the commit had changed has been undone. */
  abortsUndone: number
  /** Why the last commit was aborted, for the operator; null where the operator asked for it, or there was none. */
  abortReason: string | null
  lastRehearsal: Rehearsal | null
  /** Cluster time of the source, as decimal digits, up to which the last check before the decision had seen it quiet. */
  quietUntil: string | null
  /** What the check after unblocking found; null before it. */
  lateWrites: LateWrites | null
}

const fresh: Stages = {
  initialised: false,
  adapted: false,
  hashed: false,
  catalogue: 0,
  attempt: 0,
  step: 'none',
  term: 0,
  commitPoint: null,
  failures: 0,
  failure: null,
  abandoned: false,
  heldBack: false,
  writesHeld: false,
  request: null,
  aborts: 0,
  abortsUndone: 0,
  abortReason: null,
  lastRehearsal: null,
  quietUntil: null,
  lateWrites: null,
}

/** Identifies who may advance an attempt: a coordinator of an earlier term may not, nor may anybody once it is abandoned. */
export interface AttemptOwner {
  attempt: number
  term: number
}

export class StageStore {
  readonly #stored: StoredDocuments
  #latest: Stages = fresh
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /** As loaded last, for what is shown without asking. */
  get latest(): Stages {
    return this.#latest
  }

  async load(): Promise<Stages> {
    const found = await this.#stored.findOne('stages', { _id: 'sync' })
    this.#latest = { ...fresh, ...(found as Partial<Stages> | null) }
    return this.#latest
  }

  async set(fields: Partial<Stages>): Promise<void> {
    await this.#stored.update('stages', [{ q: { _id: 'sync' }, u: { $set: fields }, upsert: true }])
  }

  async catalogueChanged(): Promise<void> {
    await this.#stored.update('stages', [{ q: { _id: 'sync' }, u: { $set: {}, $inc: { catalogue: 1 } }, upsert: true }])
  }

  /**
   * Stores the request of a commit unless there is one. Returns what is stored then.
   * @param replaces a request that is known to bind nobody any more
   */
  async request(request: CommitRequest, replaces: Stages['request'] = null): Promise<Stages> {
    const fields = { request: { ...request, at: Date.now() }, abortReason: null }
    const known = replaces === null ? { request: null } : { 'request.at': replaces.at }
    return await this.#update({ _id: 'sync', ...known }, fields)
  }

  /** Begins an attempt, unless a later term has taken over, or the commit is decided or aborted. May be repeated. Returns what is stored then. */
  async begin({ attempt, term }: AttemptOwner, abortsBefore: number, commitPoint: string): Promise<Stages> {
    const begun = { failure: null, abandoned: false, heldBack: false }
    const fields = { attempt, term, commitPoint, step: 'point' as const, ...begun }
    return await this.#update({ ...mayTakeOver(term), ...hasAborts(abortsBefore) }, fields)
  }

  /** The coordinator of this term works on the attempt from now on: one of an earlier term can no longer advance it. */
  async takeOver({ attempt, term }: AttemptOwner): Promise<void> {
    const q = { ...mayTakeOver(term), attempt, abandoned: { $ne: true } }
    await this.#stored.update('stages', [{ q, u: { $set: { term } } }])
  }

  /**
   * Stores that an attempt has come to a step, unless it was abandoned (aborted) meanwhile or another term has taken it over.
   * May be repeated. Returns what is stored then.
   */
  async advance({ attempt, term }: AttemptOwner, step: CommitStep, fields: Partial<Stages> = {}): Promise<Stages> {
    // Once the commit is decided nothing competes: any coordinator may take the steps that are left.
    const competed = commitSteps.indexOf(step) <= commitSteps.indexOf('decided')
    const owned = competed ? { attempt, term, abandoned: { $ne: true } } : {}
    const real = step === 'decided' ? { 'request.dryRun': { $ne: true } } : {}
    return await this.#update({ _id: 'sync', ...owned, ...real }, { ...fields, step, failure: null })
  }

  /**
   * Aborts the commit that is under way, unless it is decided or was aborted already. One document decides, so of an abort
   * and a decision exactly one takes effect.
   * @param abortsBefore how many commits had been aborted when this one was asked for
   * @returns what is stored then: `aborts` is greater than `abortsBefore` if the commit is aborted
   */
  async abort(
    abortsBefore: number,
    fields: Partial<Pick<Stages, 'abortReason' | 'lastRehearsal'>> = {},
  ): Promise<Stages> {
    const aborted = { aborts: abortsBefore + 1, abandoned: true, heldBack: false, request: null }
    const q = { _id: 'sync', step: { $nin: [...decidedSteps] }, ...hasAborts(abortsBefore) }
    return await this.#update(q, { abortReason: null, ...fields, ...aborted })
  }

  /** The present attempt is given up, unless it is decided: what it had changed is to be undone. Returns what is stored then. */
  async abandon(): Promise<Stages> {
    return await this.#update({ _id: 'sync', step: { $nin: [...decidedSteps] } }, { abandoned: true, heldBack: false })
  }

  /** The attempt has failed, unless it was aborted, or another one begun, since these stages were loaded. */
  async fail({ attempt, aborts, failures }: Stages, failure: Failure): Promise<void> {
    const fields = { failure, failures: failures + 1, heldBack: false }
    await this.#update({ _id: 'sync', ...(attempt > 0 ? { attempt } : {}), ...hasAborts(aborts) }, fields)
  }

  /** Sets fields where the filter matches. Returns what is stored then, whether or not it did. */
  async #update(query: object, fields: Partial<Stages>): Promise<Stages> {
    const found = await this.#stored.findAndUpdate('stages', query, { $set: fields })
    if (!found) return await this.load()
    this.#latest = { ...fresh, ...(found as Partial<Stages>) }
    return this.#latest
  }
}

export function hasReached(stages: Stages, step: CommitStep): boolean {
  return commitSteps.indexOf(stages.step) >= commitSteps.indexOf(step)
}

/** What an earlier version has stored has no such count. */
function hasAborts(aborts: number) {
  return { $expr: { $eq: [{ $ifNull: ['$aborts', 0] }, aborts] } }
}

/** What an earlier version has stored has no term. */
function mayTakeOver(term: number) {
  return { _id: 'sync', term: { $not: { $gt: term } }, step: { $nin: [...decidedSteps] } }
}

const decidedSteps = commitSteps.slice(commitSteps.indexOf('decided'))

/** The commit only goes forward from here on. */
export function isDecided(stages: Stages): boolean {
  return hasReached(stages, 'decided')
}
