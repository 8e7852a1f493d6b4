import type { StartConfiguration } from '../../src/domain/start-request.ts'

/**
 * State as stored by the last release in which the sync was not yet one state machine: the document `sync` of
 * `tandem_internal.stages`, and the instance's context. The state was captured from processes of that release. Each
 * entry's name gives the state, or the step at which the process was killed. Only the times were changed: all entries
 * have the same ones.
 */
export interface OlderSync {
  /** Number of reversals of the sync. */
  generation: number
  stages: Record<string, unknown>
  /** Fields of the instance's context that differ from `olderContext`. */
  instance: Record<string, unknown>
}

const configuration: Omit<
  StartConfiguration,
  'existingData' | 'timeseries' | 'copyInNaturalOrder' | 'detectRandomId' | 'namespaceRemap'
> = {
  source: 'cluster0',
  destination: 'cluster1',
  buildIndexes: 'beforeDataCopy',
  enableUserWriteBlocking: 'sourceAndDestination',
  writeBlockingGiven: true,
  includeNamespaces: null,
  excludeNamespaces: null,
  reversible: true,
  sharding: null,
  // This release adds its default.
  verification: { enabled: true } as StartConfiguration['verification'],
}

/** The context of an instance that had begun to copy. */
export const olderContext = {
  configuration,
  initialised: true,
  copyCompleted: false,
  hashed: false,
  commitRequested: false,
  abortsBefore: 0,
  commitUntil: null,
  dryRun: false,
  commitAborted: false,
  commitPoint: null,
  reached: false,
  decided: false,
  canWrite: false,
  failure: null,
  copyDrained: false,
  eventsDrained: false,
  pauseRequested: false,
  reversing: null,
  limits: { bytesPerSecond: null, readConcurrency: null, writeConcurrency: null },
}

const failure = {
  error: 'VerificationFailed',
  errorDescription:
    '1 difference between source and destination; the first: app.things, _id {"$numberInt":"7"} (content at u). GET /api/v1/verification/mismatches names them. Run tandem repair, then send resume.',
}
const lastRehearsal = {
  at: '2026-11-23T08:01:56.559Z',
  steps: [
    { step: 'commitPoint', seconds: 0.136 },
    { step: 'applyEvents', seconds: 0.499 },
    { step: 'prepare', seconds: 0.172 },
    { step: 'verify', seconds: 0.474 },
    { step: 'lastCheck', seconds: 0.093 },
  ],
  outageSeconds: 1.374,
  verdict: 'equal',
}
const commitPoint = '7711273824716587010'
const quietUntil = '7711273829011554311'
const at = 1795420848131

const initialised = { initialised: true, schemaVersion: 1 }
const hashed = { ...initialised, hashed: true }
const requested = { ...hashed, abortReason: null, request: { dryRun: false, maxSeconds: null, at } }
const withCommitPoint = {
  ...requested,
  ...{ attempt: 1, term: 1, step: 'point', commitPoint },
  ...{ abandoned: false, heldBack: false, failure: null },
}
const prepared = { ...withCommitPoint, step: 'prepared' }
const verified = { ...withCommitPoint, step: 'verified', writesHeld: true }
const decided = { ...withCommitPoint, step: 'decided', writesHeld: false, quietUntil, lateWrites: null }
const failed = { ...prepared, writesHeld: true, failure, failures: 1 }
const aborted = { ...verified, request: null, abandoned: true, aborts: 1 }
const committed = { ...decided, step: 'committed', lateWrites: { total: 0, first: [] } }

const ready = { copyCompleted: true, hashed: true }
const committing = { ...ready, commitRequested: true }
const reachedCommitPoint = { ...committing, commitPoint, reached: true }
const handedOver = { ...reachedCommitPoint, commitRequested: false, decided: true, canWrite: true }
const swapped = {
  configuration: { ...configuration, source: 'cluster1', destination: 'cluster0' },
  copyCompleted: true,
}
const preparingDestination = { ...swapped, reversing: 'adapting' }

/** Stored states in the order in which a sync reaches them. */
export const olderSyncs = {
  'RUNNING, copying': { generation: 0, stages: initialised, instance: {} },
  'RUNNING, canCommit': { generation: 0, stages: hashed, instance: ready },
  PAUSED: {
    generation: 0,
    stages: hashed,
    instance: { ...ready, copyDrained: true, eventsDrained: true, pauseRequested: true },
  },
  'died at blockSource': { generation: 0, stages: requested, instance: committing },
  'died at commitPoint': { generation: 0, stages: requested, instance: committing },
  'died at prepareIndexes': { generation: 0, stages: withCommitPoint, instance: reachedCommitPoint },
  'died at reversePosition': { generation: 0, stages: prepared, instance: reachedCommitPoint },
  'died at verdict': { generation: 0, stages: { ...prepared, writesHeld: true }, instance: reachedCommitPoint },
  'died at lastCheck': { generation: 0, stages: verified, instance: reachedCommitPoint },
  'died at decide': { generation: 0, stages: verified, instance: reachedCommitPoint },
  'died at unblock': { generation: 0, stages: decided, instance: { ...reachedCommitPoint, decided: true } },
  'died at unblocked': { generation: 0, stages: decided, instance: { ...reachedCommitPoint, decided: true } },
  'died at finishIndexes': {
    generation: 0,
    stages: { ...decided, step: 'canWrite' },
    instance: { ...reachedCommitPoint, decided: true, canWrite: true },
  },
  /** A second process began the commit again, and died while it undid what the first process had prepared. */
  'second attempt, deferring again': {
    generation: 0,
    stages: { ...prepared, writesHeld: true, abandoned: true },
    instance: committing,
  },
  'second attempt about to begin': {
    generation: 0,
    stages: { ...prepared, writesHeld: true, abandoned: true, heldBack: true, abortsUndone: 0 },
    instance: committing,
  },
  'FAILED with VerificationFailed': { generation: 0, stages: failed, instance: { ...reachedCommitPoint, failure } },
  'FAILED twice': {
    generation: 0,
    stages: { ...failed, attempt: 2, term: 2, failures: 2, abortsUndone: 0 },
    instance: { ...reachedCommitPoint, failure },
  },
  'FAILED, resumed and died': {
    generation: 0,
    stages: { ...failed, abandoned: true, heldBack: true, abortsUndone: 0 },
    instance: committing,
  },
  'FAILED, aborted and undone': {
    generation: 0,
    stages: { ...failed, request: null, abandoned: true, heldBack: true, aborts: 1, abortsUndone: 1 },
    instance: { ...ready, commitAborted: true },
  },
  'abort acknowledged, killed before undone': {
    generation: 0,
    stages: aborted,
    instance: { ...ready, commitAborted: true },
  },
  'aborted and undone': {
    generation: 0,
    stages: { ...aborted, heldBack: true, abortsUndone: 1 },
    instance: { ...ready, commitAborted: true },
  },
  'rehearsal finished': {
    generation: 0,
    stages: { ...aborted, heldBack: true, attempt: 2, term: 2, aborts: 2, abortsUndone: 2, lastRehearsal },
    instance: { ...ready, abortsBefore: 1, commitAborted: true },
  },
  'rehearsal with maxSeconds died at lastCheck': {
    generation: 0,
    stages: { ...verified, request: { dryRun: true, maxSeconds: 300, at } },
    instance: { ...reachedCommitPoint, commitUntil: at + 300_007, dryRun: true },
  },
  COMMITTED: { generation: 0, stages: committed, instance: handedOver },
  'reversal died at reverseCopy': {
    generation: 0,
    stages: committed,
    instance: { ...handedOver, reversing: 'moving' },
  },
  'reversal died at reverseSwitch': {
    generation: 0,
    stages: committed,
    instance: { ...handedOver, reversing: 'moving' },
  },
  'reversal died at reverseDefinitions': { generation: 1, stages: initialised, instance: preparingDestination },
  'reversed, RUNNING': {
    generation: 1,
    stages: { ...hashed, adapted: true },
    instance: { ...swapped, hashed: true },
  },
} satisfies Record<string, OlderSync>
