import type { StartConfiguration } from '../../src/domain/start-request.ts'

/**
 * What the release before the sync's state became one machine stored, captured from its processes, which were killed where the name
 * of an entry says so: the document `sync` of `tandem_internal.stages`, and the instance's context. Only times are the same here
 * in all of them.
 */
export interface OlderSync {
  /** How often the sync had been reversed. */
  generation: number
  stages: Record<string, unknown>
  /** Of the instance's context, what differs from `olderContext`. */
  instance: Record<string, unknown>
}

const configuration: Omit<StartConfiguration, 'existingData'> = {
  source: 'cluster0',
  destination: 'cluster1',
  buildIndexes: 'beforeDataCopy',
  enableUserWriteBlocking: 'sourceAndDestination',
  writeBlockingGiven: true,
  includeNamespaces: null,
  excludeNamespaces: null,
  reversible: true,
  sharding: null,
  verification: { enabled: true },
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

const begun = { initialised: true, schemaVersion: 1 }
const hashed = { ...begun, hashed: true }
const asked = { ...hashed, abortReason: null, request: { dryRun: false, maxSeconds: null, at } }
const pointed = {
  ...asked,
  ...{ attempt: 1, term: 1, step: 'point', commitPoint },
  ...{ abandoned: false, heldBack: false, failure: null },
}
const prepared = { ...pointed, step: 'prepared' }
const verified = { ...pointed, step: 'verified', writesHeld: true }
const decided = { ...pointed, step: 'decided', writesHeld: false, quietUntil, lateWrites: null }
const failed = { ...prepared, writesHeld: true, failure, failures: 1 }
const aborted = { ...verified, request: null, abandoned: true, aborts: 1 }
const committed = { ...decided, step: 'committed', lateWrites: { total: 0, first: [] } }

const ready = { copyCompleted: true, hashed: true }
const committing = { ...ready, commitRequested: true }
const arrived = { ...committing, commitPoint, reached: true }
const left = { ...arrived, commitRequested: false, decided: true, canWrite: true }
const turned = { configuration: { ...configuration, source: 'cluster1', destination: 'cluster0' }, copyCompleted: true }
const adapting = { ...turned, reversing: 'adapting' }

/** In the order in which a sync comes to them. */
export const olderSyncs = {
  'RUNNING, copying': { generation: 0, stages: begun, instance: {} },
  'RUNNING, canCommit': { generation: 0, stages: hashed, instance: ready },
  PAUSED: {
    generation: 0,
    stages: hashed,
    instance: { ...ready, copyDrained: true, eventsDrained: true, pauseRequested: true },
  },
  'died at blockSource': { generation: 0, stages: asked, instance: committing },
  'died at commitPoint': { generation: 0, stages: asked, instance: committing },
  'died at prepareIndexes': { generation: 0, stages: pointed, instance: arrived },
  'died at reversePosition': { generation: 0, stages: prepared, instance: arrived },
  'died at verdict': { generation: 0, stages: { ...prepared, writesHeld: true }, instance: arrived },
  'died at lastCheck': { generation: 0, stages: verified, instance: arrived },
  'died at decide': { generation: 0, stages: verified, instance: arrived },
  'died at unblock': { generation: 0, stages: decided, instance: { ...arrived, decided: true } },
  'died at unblocked': { generation: 0, stages: decided, instance: { ...arrived, decided: true } },
  'died at finishIndexes': {
    generation: 0,
    stages: { ...decided, step: 'canWrite' },
    instance: { ...arrived, decided: true, canWrite: true },
  },
  /** Begun again by another process, which died while it deferred what the first had prepared. */
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
  'FAILED with VerificationFailed': { generation: 0, stages: failed, instance: { ...arrived, failure } },
  'FAILED twice': {
    generation: 0,
    stages: { ...failed, attempt: 2, term: 2, failures: 2, abortsUndone: 0 },
    instance: { ...arrived, failure },
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
    instance: { ...arrived, commitUntil: at + 300_007, dryRun: true },
  },
  COMMITTED: { generation: 0, stages: committed, instance: left },
  'reversal died at reverseCopy': { generation: 0, stages: committed, instance: { ...left, reversing: 'moving' } },
  'reversal died at reverseSwitch': { generation: 0, stages: committed, instance: { ...left, reversing: 'moving' } },
  'reversal died at reverseDefinitions': { generation: 1, stages: begun, instance: adapting },
  'reversed, RUNNING': {
    generation: 1,
    stages: { ...hashed, adapted: true },
    instance: { ...turned, hashed: true },
  },
} satisfies Record<string, OlderSync>
