import { assign, fromCallback, fromPromise, sendParent, setup } from 'xstate'
import { type Failure, FatalError } from '../src/domain/errors.ts'
import { closing, failureReport, firstError, hasFailed } from './closing.ts'
import { placeholder } from './protocol.ts'

export interface VerificationContext {
  enabled: boolean
  /** True when the last report to the instance said that everything has been compared once. */
  initiallyVerified: boolean
  /** The verifier that runs here has compared everything once. */
  scanned: boolean
  /** The error that ended the verification; null until then. */
  error: unknown
}

export type VerificationEvent =
  /** This instance coordinates, and the commit is not decided. */
  | { type: 'role.taken' }
  /** The commit is decided, so the clusters no longer have to be equal. */
  | { type: 'role.over' }
  /** `failure` is null when the observation was only stopped. */
  | { type: 'role.failed'; failure: Failure | null }
  /** Another instance coordinates. `initiallyVerified`: its verification has compared everything once. */
  | { type: 'role.observed'; initiallyVerified: boolean }
  | { type: 'scan.completed' }
  | { type: 'verdict.requested' }
  | { type: 'verdict.ended' }
  | { type: 'verification.stop' }

const stopWithError = { target: '#verification.leading.stopping', actions: 'rememberError' } as const

/**
 * The embedded verification of one sync. Only the instance that coordinates has a verifier, and only it issues a verdict.
 *
 * disabled      Verification is switched off.
 * waiting       Another instance coordinates, or the lease is lost. The coordinator's progress is reported, and this
 *               instance compares ranges that the coordinator offers.
 * leading       This instance verifies, as long as this state lasts.
 *   awaitingEarlierRun
 *                 The machine waits until an earlier run of the verification in this process has ended.
 *   awaitingCopy  The machine waits until every document has been copied once.
 *   verifying     The change streams of both clusters are followed, and changed documents are compared.
 *     scanning      Every collection is compared once, range by range.
 *     following     Only changed documents are compared.
 *     resolving     A commit requested a verdict. The source is quiet, and each difference is either resolved or
 *                   confirmed.
 *   restarting    The verifier missed changes that an oplog no longer holds, so its results are removed.
 *   stopping      Work under way ends, and its results are stored.
 * stopped       Nothing is under way.
 * failed        The failure is reported.
 * over          The commit is decided.
 */
export const verificationMachine = setup({
  types: {
    context: {} as VerificationContext,
    events: {} as VerificationEvent,
    input: {} as { enabled: boolean },
  },
  actors: {
    /** Observes which instance coordinates, until this instance does or nothing is left to verify. */
    role: fromCallback<VerificationEvent>(placeholder('role')),
    /** Compares ranges that the coordinator offers, until the state is left. */
    share: fromCallback<VerificationEvent>(placeholder('share')),
    /** Reserves the verification for this run until the state is left. */
    run: fromCallback<VerificationEvent>(placeholder('run')),
    awaitEarlierRun: fromPromise<void>(placeholder('awaitEarlierRun')),
    awaitCopy: fromPromise<void>(placeholder('awaitCopy')),
    /** Runs the verifier until it is stopped. Rejects on a failure. */
    verify: fromPromise<void>(placeholder('verify')),
    discardResults: fromPromise<void>(placeholder('discardResults')),
    /** Stops all work. Resolves when the work has ended: with the failure to report, or with null. */
    close: fromPromise<Failure | null, { error: unknown }>(placeholder('close')),
  },
  guards: {
    isEnabled: ({ context }) => context.enabled,
    isScanned: ({ context }) => context.scanned,
    isNews: ({ context, event }) =>
      event.type === 'role.observed' && event.initiallyVerified !== context.initiallyVerified,
    isNewlyVerified: ({ context, event }) =>
      event.type === 'role.observed' && event.initiallyVerified && !context.initiallyVerified,
    /**
     * The verifier has missed changes. If event application has missed them too, it reports that failure itself.
     */
    isOplogLost: ({ event }) => {
      const { error } = event as unknown as { error: unknown }
      return error instanceof FatalError && error.failure === 'OplogWindowLost'
    },
    hasRoleFailed: ({ event }) => event.type === 'role.failed' && event.failure !== null,
    hasFailed,
  },
  actions: {
    /** This action and the next one store for all instances whether everything has been compared once. */
    publishInitiallyVerified: placeholder('publishInitiallyVerified'),
    publishRestarted: placeholder('publishRestarted'),
    rememberError: assign({ error: firstError }),
    reportInitiallyVerified: sendParent({ type: 'verification.initiallyVerified' }),
    reportRestarted: sendParent({ type: 'verification.restarted' }),
    reportFailed: sendParent(failureReport),
    reportRoleFailed: sendParent(({ event }) => ({
      type: 'worker.failed',
      failure: event.type === 'role.failed' ? event.failure : null,
    })),
  },
}).createMachine({
  id: 'verification',
  context: ({ input }) => ({ enabled: input.enabled, initiallyVerified: false, scanned: false, error: null }),
  initial: 'choosing',
  states: {
    choosing: { always: [{ guard: 'isEnabled', target: 'waiting' }, { target: 'disabled' }] },
    disabled: {},
    waiting: {
      invoke: [
        { id: 'role', src: 'role' },
        { id: 'share', src: 'share' },
      ],
      on: {
        'role.taken': 'leading',
        'role.over': 'over',
        'role.failed': [
          { guard: 'hasRoleFailed', target: 'failed', actions: 'reportRoleFailed' },
          { target: 'stopped' },
        ],
        'role.observed': [
          { guard: 'isNewlyVerified', actions: [assign({ initiallyVerified: true }), 'reportInitiallyVerified'] },
          { guard: 'isNews', actions: [assign({ initiallyVerified: false }), 'reportRestarted'] },
        ],
      },
    },
    leading: {
      initial: 'awaitingEarlierRun',
      invoke: { id: 'run', src: 'run' },
      on: { 'verification.stop': '.stopping' },
      states: {
        awaitingEarlierRun: {
          invoke: { id: 'awaitEarlierRun', src: 'awaitEarlierRun', onDone: 'awaitingCopy', onError: stopWithError },
        },
        awaitingCopy: { invoke: { id: 'awaitCopy', src: 'awaitCopy', onDone: 'verifying', onError: stopWithError } },
        verifying: {
          initial: 'scanning',
          entry: assign({ scanned: false }),
          invoke: {
            id: 'verify',
            src: 'verify',
            onDone: 'stopping',
            onError: [{ guard: 'isOplogLost', target: 'restarting' }, stopWithError],
          },
          on: {
            'scan.completed': {
              actions: [
                assign({ scanned: true, initiallyVerified: true }),
                'publishInitiallyVerified',
                'reportInitiallyVerified',
              ],
            },
          },
          states: {
            scanning: { always: { guard: 'isScanned', target: 'following' }, on: { 'verdict.requested': 'resolving' } },
            following: { on: { 'verdict.requested': 'resolving' } },
            resolving: { on: { 'verdict.ended': 'scanning' } },
          },
        },
        restarting: {
          entry: [assign({ initiallyVerified: false }), 'publishRestarted', 'reportRestarted'],
          invoke: { id: 'discardResults', src: 'discardResults', onDone: 'verifying', onError: stopWithError },
        },
        stopping: {
          invoke: closing('#verification.stopped', '#verification.failed'),
          on: { 'verification.stop': {} },
        },
      },
    },
    stopped: {},
    failed: {},
    over: {},
  },
})
