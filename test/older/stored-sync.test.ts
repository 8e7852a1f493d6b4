import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { completed, type InstanceContext } from '../../machines/instance-context.ts'
import { pathOf, viewOf } from '../../machines/sync-view.ts'
import { syncFrom } from '../../src/coordination/stored-sync.ts'
import { begin } from '../machines/instance-model.ts'
import { type Action, act, complete, type Member, memberActions, type Whole } from '../machines/whole-sync.ts'
import { type OlderSync, olderContext, olderSyncs } from './stages-of-0.1.ts'

type Name = keyof typeof olderSyncs
type Stored = Parameters<typeof completed>[0]

/**
 * For each stored form: the state of the sync, the state in which the instance boots, and whether a commit is
 * requested. These are the states before any instance acts. Like the older release after a restart, this release then
 * undoes what an undecided commit has prepared, and begins another attempt.
 */
const expected: Record<Name, { sync: string; boots: string; request?: true; attempt?: number; failure?: true }> = {
  'RUNNING, copying': { sync: 'replicating', boots: 'syncing.replicating.copying' },
  'RUNNING, canCommit': { sync: 'replicating', boots: 'syncing.replicating.applying' },
  PAUSED: { sync: 'replicating', boots: 'paused.resting' },
  // No attempt was stored, so the commit counts as the first attempt.
  'died at blockSource': gathering(1),
  'died at commitPoint': gathering(1),
  'died at prepareIndexes': committing('applying'),
  'died at reversePosition': committing('verifying'),
  'died at verdict': committing('verifying'),
  'died at lastCheck': committing('deciding'),
  'died at decide': committing('deciding'),
  'died at unblock': decided('opening'),
  'died at unblocked': decided('opening'),
  'died at finishIndexes': decided('converting'),
  'second attempt, deferring again': { ...committing(''), sync: 'restoring' },
  'second attempt about to begin': gathering(2),
  'FAILED with VerificationFailed': failed(1),
  'FAILED twice': failed(2),
  // The sync was no longer FAILED, because the next attempt was about to begin.
  'FAILED, resumed and died': gathering(2),
  // The failure of the aborted commit was still stored.
  'FAILED, aborted and undone': { sync: 'replicating', boots: 'syncing.replicating.applying', attempt: 1 },
  'abort acknowledged, killed before undone': { sync: 'undoing', boots: 'syncing.replicating.applying', attempt: 1 },
  'aborted and undone': { sync: 'replicating', boots: 'syncing.replicating.applying', attempt: 1 },
  'rehearsal finished': { sync: 'replicating', boots: 'syncing.replicating.applying', attempt: 2 },
  'rehearsal with maxSeconds died at lastCheck': committing('deciding'),
  COMMITTED: { sync: 'committed', boots: 'committed.leaving', request: true, attempt: 1 },
  'reversal died at reverseCopy': { sync: 'committed', boots: 'reversing.moving', request: true, attempt: 1 },
  'reversal died at reverseSwitch': { sync: 'committed', boots: 'reversing.moving', request: true, attempt: 1 },
  'reversal died at reverseDefinitions': {
    sync: 'reversing.preparingDestination',
    boots: 'reversing.preparingDestination',
  },
  'reversed, RUNNING': { sync: 'replicating', boots: 'syncing.replicating.applying' },
}

function gathering(attempt: number) {
  return { sync: 'committing.gathering', boots: 'syncing.replicating.committing', request: true, attempt } as const
}
function committing(step: string) {
  return { sync: `committing.${step}`, boots: 'syncing.replicating.committing', request: true, attempt: 1 } as const
}
function decided(step: string) {
  return { sync: `decided.${step}`, boots: 'syncing.finishing.handedOver', request: true, attempt: 1 } as const
}
function failed(attempt: number) {
  return { sync: 'failed', boots: 'failed.watching', request: true, attempt, failure: true } as const
}

const contextOf = ({ instance }: OlderSync) => completed({ ...olderContext, ...instance } as Stored)
const memberOf = (context: InstanceContext): Member => {
  return { snapshot: begin(context), open: false, holds: false, term: 0, failures: null, plan: 0, stoppedFor: 0 }
}
/** Number of coordinator terms so far. */
const terms = 9

function wholeOf({ stages, generation }: Pick<OlderSync, 'stages' | 'generation'>, contexts: InstanceContext[]): Whole {
  const { snapshot } = syncFrom(stages, generation)
  return { sync: snapshot, revision: 0, members: contexts.map(memberOf), leader: null, terms, copied: 0, lost: false }
}

describe('a state that the previous release stored', () => {
  const names = Object.keys(olderSyncs) as Name[]

  it.each(names)('%s: the sync keeps its state', (name) => {
    const { stages, generation }: OlderSync = olderSyncs[name]
    const { sync, request = false, attempt = 0, failure = false } = expected[name]
    const { snapshot, revision } = syncFrom(stages, generation)
    const { context } = snapshot
    expect(revision).toBeNull()
    expect(pathOf(snapshot)).toBe(sync)
    expect([context.request !== null, context.attempt, context.failure !== null]).toEqual([request, attempt, failure])
    expect(context.mayBeOpen).toBe(false)
    expect(context.initiallyVerified).toBe(stages['hashed'] === true)
    const kept = ['term', 'aborts', 'failures', 'writesHeld', 'lastRehearsal', 'quietUntil', 'lateWrites']
    for (const key of kept) if (key in stages) expect(context).toHaveProperty(key, stages[key])
    if (sync === 'committing.gathering') expect(context.commitTimestamp).toBeNull()
  })

  it.each(names)('%s: the instance boots into its former state', (name) => {
    const context = contextOf(olderSyncs[name])
    expect([context.sync, context.attempt]).toEqual([null, 0])
    expect(pathOf(begin(context))).toBe(expected[name].boots)
  })

  it.each(names.filter((name) => olderSyncs[name].generation === 0 && !name.startsWith('reversal')))(
    '%s: one or two instances lead the sync to committed',
    (name) => {
      const older: OlderSync = olderSyncs[name]
      const context = contextOf(older)
      for (const contexts of [[context], [context, context]]) {
        expect(complete(wholeOf(older, contexts)), name).not.toBeNull()
      }
    },
  )

  it('shows a commit as decided from the step `decided` on, and canWrite from the step `canWrite` on', () => {
    for (const name of names) {
      const { stages, generation }: OlderSync = olderSyncs[name]
      const view = viewOf(syncFrom(stages, generation).snapshot, 0)
      const canWrite = ['canWrite', 'committed'].includes(String(stages['step']))
      expect([view.decided, view.canWrite], name).toEqual([canWrite || stages['step'] === 'decided', canWrite])
    }
  })
})

const steps = ['none', 'point', 'prepared', 'verified', 'decided', 'canWrite', 'committed']

/** Any combination of stored fields, including combinations that the older release could not reach. */
const anyStages = fc.record(
  {
    initialised: fc.boolean(),
    adapted: fc.boolean(),
    hashed: fc.boolean(),
    catalogue: fc.nat({ max: 3 }),
    attempt: fc.nat({ max: 3 }),
    step: fc.constantFrom(...steps),
    term: fc.nat({ max: terms }),
    commitPoint: fc.constantFrom(null, '7'),
    failures: fc.nat({ max: 2 }),
    failure: fc.constantFrom(null, { error: 'VerificationFailed', errorDescription: 'one difference' }),
    abandoned: fc.boolean(),
    heldBack: fc.boolean(),
    writesHeld: fc.boolean(),
    request: fc.option(fc.record({ dryRun: fc.boolean(), maxSeconds: fc.constant(null), at: fc.nat() })),
    aborts: fc.nat({ max: 2 }),
    abortsUndone: fc.nat({ max: 2 }),
    abortReason: fc.constantFrom(null, 'the time was over'),
    quietUntil: fc.constantFrom(null, '9'),
    lateWrites: fc.constantFrom(null, { total: 0, first: [] }),
  },
  { requiredKeys: [] },
)
type AnyStages = typeof anyStages extends fc.Arbitrary<infer Any> ? Any : never

const ready = { ...completed(olderContext as Stored), copyCompleted: true, initiallyVerified: true }

/**
 * Completes the sync. A rehearsal may wait forever for an instance that has received another commit. In that case, the
 * operator aborts the rehearsal.
 */
function completeAtLast(whole: Whole): ReturnType<typeof complete> {
  const events = [...'123'].flatMap(() => ['elect', 'follow', 'open', 'step'] as const)
  const aborted = () => {
    const actions = [...events, 'abort' as const].flatMap((does) =>
      whole.members.map((_, member) => ({ member, does })),
    )
    return actions.reduce(act, whole)
  }
  return complete(whole) ?? complete(aborted())
}

/** Returns the contexts that an instance can have while these fields are stored. */
function contextsAt({
  step = 'none',
  initialised,
  request,
  attempt = 0,
  aborts = 0,
  failure,
  abandoned,
}: AnyStages): InstanceContext[] {
  const at = steps.indexOf(step)
  if (!initialised && at < steps.indexOf('decided'))
    return [{ ...ready, initialised: false, copyCompleted: false, initiallyVerified: false }]
  const committing = { ...ready, commitRequested: true, dryRun: request?.dryRun ?? false, abortsBefore: aborts }
  const arrived = { ...committing, commitTimestamp: '7', reached: true }
  const decided = { ...arrived, decided: true }
  const canWrite = { ...decided, canWrite: true }
  const ofCommit = [committing, arrived, ...(failure ? [{ ...arrived, failure } as InstanceContext] : [])]
  if (step === 'decided') return [...ofCommit, decided]
  if (step === 'canWrite') return [arrived, decided, canWrite]
  if (step === 'committed') return [decided, canWrite, { ...canWrite, commitRequested: false }]
  if (request) return [ready, ...ofCommit]
  if ((attempt > 0 || (failure && !abandoned)) && aborts === 0) return ofCommit
  return [ready, { ...ready, commitAborted: true }, ...(aborts > 0 ? [{ ...arrived, abortsBefore: aborts - 1 }] : [])]
}

describe('any state that the previous release stored', () => {
  it('becomes a state of the sync, also after a reversal, and is unchanged when it is stored and read again', () => {
    fc.assert(
      fc.property(anyStages, fc.nat({ max: 2 }), (stages, generation) => {
        const { snapshot } = syncFrom(stages, generation)
        expect(syncFrom(stages, generation).snapshot.value).toEqual(snapshot.value)
        const { value, context } = JSON.parse(JSON.stringify(snapshot))
        const again = syncFrom({ ...stages, value, context, revision: 1 }, generation)
        expect([again.revision, again.snapshot.value]).toEqual([1, snapshot.value])
        expect(again.snapshot.context).toEqual(snapshot.context)
        const isDecided = steps.indexOf(stages.step ?? 'none') >= steps.indexOf('decided')
        expect(snapshot.hasTag('decided')).toBe(isDecided)
        // An instance that is not in a commit applies changes only if nothing on the destination is prepared for a commit.
        if (snapshot.hasTag('applicable') && (stages.attempt ?? 0) > 0 && (stages.step ?? 'none') !== 'none') {
          const isRestored = stages.abandoned === true && stages.heldBack === true
          expect(isRestored || pathOf(snapshot) === 'committing.applying').toBe(true)
        }
        // An instance takes the number of the attempt whose commit timestamp it must reach; 0 means none.
        if (snapshot.matches('committing')) expect(snapshot.context.attempt).toBeGreaterThan(0)
      }),
      { numRuns: 3_000 },
    )
  })

  it('leads to committed after any sequence of actions', () => {
    const events = fc.array(
      fc.record({ member: fc.nat({ max: 1 }), does: fc.constantFrom(...memberActions) }) as fc.Arbitrary<Action>,
      { maxLength: 30 },
    )
    fc.assert(
      fc.property(anyStages, fc.tuple(fc.nat(), fc.nat()), events, (stages, picks, actions) => {
        const contexts = contextsAt(stages)
        const members = picks.map((pick) => contexts[pick % contexts.length] as InstanceContext)
        let whole = wholeOf({ stages, generation: 0 }, members)
        const initialState = whole.sync.value
        for (const action of actions) whole = act(whole, action)
        expect(
          completeAtLast(whole),
          JSON.stringify([
            initialState,
            whole.sync.value,
            ...whole.members.map(({ snapshot }) => [snapshot.value, snapshot.context]),
          ]),
        ).not.toBeNull()
      }),
      { numRuns: 300 },
    )
  })
})
