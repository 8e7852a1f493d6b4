import { type SnapshotFrom, transition } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import { freshContext, reversedContext, storable } from '../../machines/instance-context.ts'
import { syncMachine } from '../../machines/sync.ts'
import { type CoordinatorReport, freshSync, type SyncEvent } from '../../machines/sync-context.ts'
import { canBeAborted, pathOf, stepOf, viewOf } from '../../machines/sync-view.ts'
import { publicState } from '../../src/session/report-progress.ts'
import {
  type AnyEvent,
  begin,
  configuration,
  failure,
  type InstanceSnapshot,
  running,
  stored,
} from './instance-model.ts'

/**
 * A model without clusters: the stored sync machine, the machines of the instances that follow it, and the work of
 * SyncFollower, SyncSession and Peers between them. All possible events may happen in any order.
 */

export interface Member {
  snapshot: InstanceSnapshot
  /** True if its workers have begun. They begin only when the preparation of an earlier commit is undone. */
  open: boolean
  /** True if it owns partitions and applies their changes. */
  holds: boolean
  /** Number of its last term as coordinator; 0 when it has had none. */
  term: number
  /** Number of failed commit attempts that it knows of; null before it has read the sync. */
  failures: number | null
  /** The convergence whose plan its workers have loaded. */
  plan: number
  /** The convergence for which it has declared that its workers have ended. */
  stoppedFor: number
}

export interface Whole {
  sync: SnapshotFrom<typeof syncMachine>
  revision: number
  members: readonly Member[]
  leader: number | null
  terms: number
  /** The convergence after which every collection is copied; -1 before the first copy has ended. */
  copied: number
  /** True if, at a reversal, the oplogs no longer contain all changes since the commit. */
  lost: boolean
}

const everything = { includeNamespaces: null, excludeNamespaces: null }
const newFilter = { filters: everything, before: everything, dropExcluded: false }

export const memberActions = [
  'follow',
  'step',
  'failStep',
  'staleReport',
  'open',
  'claim',
  'converge',
  'stop',
  'copied',
  'initiallyVerified',
  'drained',
  'reached',
  'failWorker',
  'settled',
  'elect',
  'crash',
  'evicted',
  'pause',
  'resume',
  'commit',
  'rehearse',
  'abort',
] as const
export type MemberAction = (typeof memberActions)[number]
export interface Action {
  member: number
  does: MemberAction
}

const resting = { open: false, holds: false, term: 0, failures: null, plan: 0, stoppedFor: 0 }

export function wholeOf(count: number): Whole {
  const sync = syncMachine.resolveState({ value: 'initialising', context: freshSync })
  let whole: Whole = { sync, revision: 0, members: [], leader: null, terms: 0, copied: -1, lost: false }
  whole = { ...whole, members: Array.from({ length: count }, () => ({ ...resting, snapshot: begin() })) }
  for (let one = 0; one < count; one++) whole = deliver(whole, one, { type: 'sync.start', configuration })
  return whole
}

/** Returns a sync whose stored state has been moved to the new destination of a reversal. */
export function reversedWhole(count: number, lost: boolean): Whole {
  const sync = syncMachine.resolveState({ value: { reversing: 'preparingDestination' }, context: freshSync })
  const context = { ...storable(reversedContext({ ...freshContext, configuration })), sync: null }
  const members = Array.from({ length: count }, () => ({ ...resting, snapshot: begin(context) }))
  return { sync, revision: 0, members, leader: null, terms: 0, copied: lost ? -1 : 0, lost }
}

export const stateOfSync = (whole: Whole): string => pathOf(whole.sync)
const at = (whole: Whole, one: number): Member => whole.members[one] as Member
const isRunning = (member: Member, worker: string) => running(member.snapshot).includes(worker)
const isArrived = ({ snapshot }: Member) => snapshot.matches({ syncing: 'finishing' })

function change(whole: Whole, one: number, fields: Partial<Member>): Whole {
  return { ...whole, members: whole.members.map((member, each) => (each === one ? { ...member, ...fields } : member)) }
}

function send(whole: Whole, event: SyncEvent): Whole {
  if (!whole.sync.can(event)) return whole
  const [next] = transition(syncMachine, whole.sync, event)
  // Stores the snapshot as JSON and reads it back, as the product does.
  const { value, context } = JSON.parse(JSON.stringify({ value: next.value, context: next.context }))
  return { ...whole, sync: syncMachine.resolveState({ value, context }), revision: whole.revision + 1 }
}

function report(whole: Whole, one: number, event: CoordinatorReport): Whole {
  const { term } = at(whole, one)
  const elected = send(whole, { type: 'coordinator.elected', term })
  const { attempt, convergences } = elected.sync.context
  return send(elected, { ...event, term, attempt, convergences } as SyncEvent)
}

/** Sends an event to one instance, and applies the effects of the actors that it stops and starts. */
function deliver(whole: Whole, one: number, event: AnyEvent): Whole {
  const [snapshot, actions] = transition(instanceMachine, at(whole, one).snapshot, event as never)
  const begun = (id: string) =>
    actions.some(
      ({ type, params }) => type === 'xstate.spawnChild' && (params as { id?: string } | undefined)?.id === id,
    )
  let next = change(whole, one, { snapshot })
  if (begun('eventApplication') || !isRunning(at(next, one), 'eventApplication')) {
    next = change(next, one, { open: false, holds: false })
  }
  const isFailed = snapshot.matches('failed') && !at(whole, one).snapshot.matches('failed')
  if (begun('syncFollower')) next = change(next, one, { failures: null })
  // HeartbeatPublisher reports the failure of a coordinator's commit, except in a rehearsal.
  const isRehearsal = snapshot.context.dryRun || whole.sync.context.request?.dryRun
  if (
    isFailed &&
    whole.leader === one &&
    snapshot.context.commitRequested &&
    snapshot.context.failure &&
    !isRehearsal
  ) {
    next = report(next, one, { type: 'commit.failed', failure: snapshot.context.failure })
  }
  return rest(next, one)
}

const isAtWork = ({ snapshot }: Member) => ['RUNNING', 'COMMITTING', 'REVERSING'].includes(publicState(snapshot))
/** True when this instance is at work, or no other instance is. */
const mayLead = (whole: Whole, one: number) =>
  isAtWork(at(whole, one)) || !whole.members.some((member, each) => each !== one && isAtWork(member))

/** An instance that is not at work gives up the coordinator role if another instance is at work. */
function rest(whole: Whole, one: number): Whole {
  return whole.leader !== one || mayLead(whole, one) ? whole : { ...whole, leader: null }
}

const fails: AnyEvent = { type: 'worker.failed', failure }

const isWithoutLease = ({ snapshot }: Member): boolean => pathOf(snapshot).match(/holding|waiting/) !== null

/** Returns the coordinator's report at the end of its step; null while the step cannot end. */
function doStep(whole: Whole, one: number): CoordinatorReport | null {
  const member = at(whole, one)
  const isCommitting = publicState(member.snapshot) === 'COMMITTING'
  const others = whole.members.filter((_, each) => each !== one)
  const alone = isArrived(member) && others.every(({ holds }) => !holds)
  switch (stepOf(whole.sync)) {
    case 'initialise':
      return { type: 'initialised' }
    case 'replan': {
      const { convergences } = whole.sync.context
      // SyncFollower reports the state to its instance before it begins the step.
      const hasLeft = member.snapshot.context.convergences === convergences && !member.open
      const haveStopped = others.every((other) => other.stoppedFor === convergences || isWithoutLease(other))
      return hasLeft && haveStopped ? { type: 'convergence.planned', startTime: '5' } : null
    }
    case 'gather': {
      const all = whole.members.every(({ snapshot }) => publicState(snapshot) === 'COMMITTING')
      return isCommitting && member.open && all ? { type: 'commit.gathered' } : null
    }
    case 'takeCommitTimestamp':
      return isCommitting && member.open ? { type: 'commit.timestampTaken', commitTimestamp: '7' } : null
    case 'applyAll':
      return alone ? { type: 'commit.applied' } : null
    case 'prepare':
      return alone ? { type: 'commit.prepared' } : null
    case 'verify':
      return alone ? { type: 'commit.verified' } : null
    case 'decide':
      return alone ? { type: 'commit.decided', quietUntil: '8' } : null
    case 'open':
      return isArrived(member) ? { type: 'commit.opened' } : null
    case 'convert':
      return isArrived(member) ? { type: 'commit.converted' } : null
    case 'prepareDestination':
      return { type: 'reversal.prepared', converges: whole.lost }
    case 'undo':
      return { type: 'commit.undone', aborts: whole.sync.context.aborts }
    default:
      return null
  }
}

/** Performs one iteration of `SyncSession.#untilApplicable`. */
function becomeApplicable(whole: Whole, one: number, restarts: boolean): [Whole, boolean] {
  const leads = whole.leader === one
  if (whole.sync.hasTag('applicable') && !(restarts && leads)) return [whole, true]
  if (whole.sync.hasTag('decided') || !leads) return [whole, false]
  const next = report(whole, one, { type: 'commit.renewed' })
  return [next, next.sync.hasTag('applicable')]
}

function command(whole: Whole, one: number, event: AnyEvent): Whole {
  return at(whole, one).snapshot.can(event as never) ? deliver(whole, one, event) : whole
}

function commit(whole: Whole, one: number, dryRun: boolean): Whole {
  if (!at(whole, one).snapshot.hasTag('canCommit')) return whole
  const request = { dryRun, maxSeconds: null, at: whole.revision }
  const isUnused = whole.members.every(({ snapshot }) => publicState(snapshot) !== 'COMMITTING')
  const known = whole.sync.context.request
  const next = send(whole, {
    type: 'commit.requested',
    request,
    replaces: isUnused && known ? known.at : null,
    abortsBefore: whole.sync.context.aborts,
    convergences: at(whole, one).snapshot.context.convergences,
  })
  const taken = next.sync.context.request
  if (taken?.dryRun !== dryRun) return next
  const { aborts } = next.sync.context
  return command(next, one, { type: 'sync.commit', abortsBefore: aborts, commitUntil: null, dryRun })
}

/** Performs an action of one instance. Returns the same whole when the action is not possible. */
export function act(whole: Whole, { member: one, does }: Action): Whole {
  const member = at(whole, one)
  const { snapshot } = member
  const leads = whole.leader === one
  const follows = isRunning(member, 'syncFollower')
  const isWatching = snapshot.matches('failed')
  switch (does) {
    case 'follow': {
      if (!follows) return whole
      const view = viewOf(whole.sync, whole.revision)
      const isOurs =
        publicState(snapshot) === 'COMMITTING' && member.failures !== null && view.failures > member.failures
      const informed = deliver(whole, one, { type: 'sync.observed', sync: view })
      if (!isRunning(at(informed, one), 'syncFollower')) return informed
      const { dryRun, abortsBefore } = snapshot.context
      const isRehearsal = dryRun || whole.sync.context.request?.dryRun
      // A rehearsal ends when an instance that takes part in it has failed.
      if (isWatching && isRehearsal && whole.sync.context.aborts === abortsBefore) {
        return send(informed, { type: 'commit.aborted', abortsBefore, reason: null, rehearsal: null })
      }
      const known = change(informed, one, { failures: view.failures })
      return isOurs && view.failure ? deliver(known, one, { type: 'worker.failed', failure: view.failure }) : known
    }
    case 'step': {
      const undoes = isRunning(member, 'undo') && whole.sync.matches('undoing')
      if (!leads || !(undoes || (follows && !isWatching))) return whole
      const elected = send(whole, { type: 'coordinator.elected', term: member.term })
      const done = doStep(elected, one)
      if (!done) return elected
      const { request, aborts } = elected.sync.context
      if (done.type === 'commit.decided' && (request?.dryRun || snapshot.context.dryRun)) {
        return send(elected, { type: 'commit.aborted', abortsBefore: aborts, reason: null, rehearsal: null })
      }
      return report(elected, one, done)
    }
    case 'failStep':
      return leads && follows && !isWatching && doStep(whole, one) ? deliver(whole, one, fails) : whole
    case 'staleReport': {
      // Delivers a report that was under way when its term ended.
      if (leads || member.term === 0) return whole
      const done = doStep(whole, one)
      const { attempt, convergences } = whole.sync.context
      return done ? send(whole, { ...done, term: member.term, attempt, convergences } as SyncEvent) : whole
    }
    case 'open': {
      if (!isRunning(member, 'eventApplication') || member.open) return whole
      const [next, open] = becomeApplicable(whole, one, true)
      return open ? change(next, one, { open, plan: next.sync.context.convergences }) : next
    }
    case 'converge': {
      const convergencesBefore = whole.sync.context.convergences
      // While a convergence is being planned, only a request with a new filter has an effect.
      const filter = whole.sync.matches('replanning') ? { filter: newFilter } : {}
      return send(whole, { type: 'convergence.requested', scope: 'all', convergencesBefore, ...filter })
    }
    case 'stop': {
      const { convergences } = whole.sync.context
      const isAsked = whole.sync.matches('replanning') && member.stoppedFor !== convergences && !leads
      const hears = follows ? snapshot.context.convergences === convergences : isRunning(member, 'undo')
      return isAsked && hears && !member.open ? change(whole, one, { stoppedFor: convergences, holds: false }) : whole
    }
    case 'claim': {
      if (!member.open || member.holds) return whole
      const [next, holds] = becomeApplicable(whole, one, false)
      return holds ? change(next, one, { holds }) : next
    }
    case 'copied':
      if (!member.open || snapshot.context.copyCompleted) return whole
      return deliver({ ...whole, copied: Math.max(whole.copied, member.plan) }, one, { type: 'copy.completed' })
    case 'initiallyVerified': {
      const may =
        snapshot.context.copyCompleted && isRunning(member, 'verification') && !snapshot.context.initiallyVerified
      return may ? deliver(whole, one, { type: 'verification.initiallyVerified' }) : whole
    }
    case 'drained': {
      if (!snapshot.matches({ syncing: { replicating: 'draining' } })) return whole
      return deliver(deliver(whole, one, { type: 'copy.drained' }), one, { type: 'events.drained' })
    }
    case 'reached': {
      const may =
        member.open && snapshot.context.attempt > 0 && isRunning(member, 'commitDeadline') && !isArrived(member)
      return may ? deliver(whole, one, { type: 'events.reached' }) : whole
    }
    case 'failWorker':
      return isRunning(member, 'eventApplication') ? deliver(whole, one, fails) : whole
    case 'settled': {
      const [id] = ['hold', 'leave'].filter((name) => isRunning(member, name))
      return id ? deliver(whole, one, { type: `xstate.done.actor.${id}`, output: undefined }) : whole
    }
    case 'elect': {
      // A coordinator that is not at work gives up the role once another instance is at work.
      const isVacant = whole.leader === null || !mayLead(whole, whole.leader)
      const hasLeft = snapshot.matches('committed') || snapshot.matches('idle')
      if (!isVacant || !mayLead(whole, one) || hasLeft) return whole
      return { ...change(whole, one, { term: whole.terms + 1 }), leader: one, terms: whole.terms + 1 }
    }
    case 'crash': {
      const again = begin(stored(snapshot))
      const next = change(whole, one, { snapshot: again, open: false, holds: false, term: 0, failures: null })
      return { ...next, leader: leads ? null : whole.leader }
    }
    case 'evicted': {
      const next = { ...change(whole, one, { holds: false }), leader: leads ? null : whole.leader }
      return deliver(next, one, { type: 'lease.evicted' })
    }
    case 'pause':
      return command(whole, one, { type: 'sync.pause' })
    case 'resume':
      return command(whole, one, { type: 'sync.resume' })
    case 'commit':
      return commit(whole, one, false)
    case 'rehearse':
      return commit(whole, one, true)
    case 'abort': {
      const isReceived = snapshot.can({ type: 'sync.abort' })
      const isAccepted = ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED'].includes(publicState(snapshot))
      if (!isReceived && !(isAccepted && canBeAborted(whole.sync))) return whole
      const { abortsBefore } = isReceived ? snapshot.context : { abortsBefore: whole.sync.context.aborts }
      const next = send(whole, { type: 'commit.aborted', abortsBefore, reason: null, rehearsal: null })
      return deliver(next, one, { type: 'sync.observed', sync: viewOf(next.sync, next.revision) })
    }
  }
}

/** The actions that happen without an operator. */
const fair: MemberAction[] = [
  'elect',
  'follow',
  'open',
  'claim',
  'stop',
  'step',
  'copied',
  'initiallyVerified',
  'drained',
  'reached',
  'settled',
]

/**
 * Continues until all instances are COMMITTED, with an operator who resumes and commits. Returns the number of rounds;
 * null when `roundsMax` rounds were too few.
 */
export function complete(whole: Whole, roundsMax = 40): { whole: Whole; rounds: number } | null {
  let now = whole
  for (let rounds = 0; rounds < roundsMax; rounds++) {
    for (let one = 0; one < now.members.length; one++) {
      for (const does of fair) now = act(now, { member: one, does })
      now = act(now, { member: one, does: 'resume' })
      now = act(now, { member: one, does: 'commit' })
    }
    if (now.members.every(({ snapshot }) => snapshot.matches('committed'))) return { whole: now, rounds }
  }
  return null
}
