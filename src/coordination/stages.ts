import type { Failure } from '../domain/errors.ts'
import type { StoredDocuments } from '../mongo/stored-documents.ts'

/** The steps of a commit that all instances wait for, in their order. */
export const commitSteps = ['none', 'point', 'prepared', 'verified', 'canWrite', 'committed'] as const
export type CommitStep = (typeof commitSteps)[number]

/** How far the sync as a whole is: written by the coordinator alone, read by all. */
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
  /** Of the present attempt, as decimal digits. */
  commitPoint: string | null
  /** How often an attempt has failed so far. */
  failures: number
  failure: Failure | null
  /** The present attempt is over without a result: the coordinator failed, or died and came back. */
  abandoned: boolean
  /** What an abandoned attempt had restored is held back again. */
  heldBack: boolean
  /** No attempt has come to allowing writes on the destination since it was first noted where a reversal would begin. */
  writesHeld: boolean
}

const fresh: Stages = {
  initialised: false,
  adapted: false,
  hashed: false,
  catalogue: 0,
  attempt: 0,
  step: 'none',
  commitPoint: null,
  failures: 0,
  failure: null,
  abandoned: false,
  heldBack: false,
  writesHeld: false,
}

export class StageStore {
  readonly #stored: StoredDocuments
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  async load(): Promise<Stages> {
    const found = await this.#stored.findOne('stages', { _id: 'sync' })
    return { ...fresh, ...(found as Partial<Stages> | null) }
  }

  async set(fields: Partial<Stages>): Promise<void> {
    await this.#stored.update('stages', [{ q: { _id: 'sync' }, u: { $set: fields }, upsert: true }])
  }

  async catalogueChanged(): Promise<void> {
    await this.#stored.update('stages', [{ q: { _id: 'sync' }, u: { $set: {}, $inc: { catalogue: 1 } }, upsert: true }])
  }
}

export function hasReached(stages: Stages, step: CommitStep): boolean {
  return commitSteps.indexOf(stages.step) >= commitSteps.indexOf(step)
}
