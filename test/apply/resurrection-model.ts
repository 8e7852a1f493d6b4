/**
 * A small model of one document whose collection is copied while its changes are applied. It tries every interleaving
 * and every crash. It mirrors src/copy/copy-segment.ts, src/copy/segment-read.ts, src/copy/converge-segment.ts,
 * src/documents/reconcile-documents.ts and src/apply/copy-ends.ts. Each of their rules can be disabled to show why it is
 * needed. One instance runs the copy or the convergence, and another instance applies events and ends the copy.
 *
 *   source   ── insert, update, delete ──▶ events
 *   copy     read ─▶ insert what was read, unless a document exists there ─▶ store "done"
 *   converge read ─▶ read the destination ─▶ missing: insert, or record if a document exists by now
 *                                           different, extra: record ─▶ store "done"
 *   apply    event ─▶ (absent: record it, then) write or delete ─▶ acknowledged ─▶ position stored now and then
 *   natural  a read in natural order: a document that was deleted and inserted again since the start may be read again, or
 *            never; the position is stored after the insert; a read that lost its position begins again
 *   end      once done: reconcile the records, with events in between ─▶ store "copied" ─▶ forget the records
 *   crash    everything not stored is forgotten, at any point
 */
export interface Rules {
  /** When the identity of a document that the source does not have is recorded while its collection is copied. */
  record: 'before the delete' | 'after the delete' | 'never'
  /** After a crash, the process assumes that identities may be recorded, because it does not remember. */
  assumesRecordsAfterCrash: boolean
  /** "copied" is stored only after the records are reconciled. */
  reconcilesBeforeCopied: boolean
  /** "done" is stored only after the insert is acknowledged. */
  doneAfterInsert: boolean
  /** A position is stored only when everything up to it is acknowledged. */
  positionAfterWrite: boolean
  /** What the convergence does with a differing or extra document. */
  differing: 'recorded' | 'replaced'
  /** What the convergence does with a missing document whose insert is refused because the document exists by now. */
  refused: 'recorded' | 'ignored'
  /** The owner that ends the copy asks the store whether other instances have recorded identities. */
  asksStore: boolean
  /** An event from before the start time of the convergence is applied as it is. Otherwise, its document is read. */
  trustsOlderEvents: boolean
  /** A successor begins only when the destination has finished the writes of the crashed process. */
  waitsForDelayedWrites: boolean
  /** The position of a read in natural order is stored only when the inserts up to it are acknowledged. */
  positionAfterInsert: boolean
  /** A read in natural order resumes only at record ids of the process and term that assigned them. */
  resumesAtSameServer: boolean
}

export const rules: Rules = {
  record: 'before the delete',
  assumesRecordsAfterCrash: true,
  reconcilesBeforeCopied: true,
  doneAfterInsert: true,
  positionAfterWrite: true,
  differing: 'recorded',
  refused: 'recorded',
  asksStore: true,
  trustsOlderEvents: false,
  waitsForDelayedWrites: true,
  positionAfterInsert: true,
  resumesAtSameServer: true,
}

type Version = number
export type SourceStep = 'insert' | 'update' | 'delete'
type SourceEvent = { kind: 'insert'; version: Version } | { kind: 'update' } | { kind: 'delete' }

interface State {
  /** The remaining steps of the source, its document, and the events of its past steps. */
  todo: readonly SourceStep[]
  source: Version | null
  events: readonly SourceEvent[]
  destination: Version | null

  /** Whether the collection existed on the destination at the start. */
  converges: boolean
  /** Whether the copy reads in natural order. */
  natural: boolean
  copy: 'begin' | 'read' | 'compared' | 'inserted' | 'done'
  /** The version that the copy has read and not inserted yet. */
  held: Version | null
  /** The version that the convergence has read on the destination. */
  found: Version | null
  /** The insert of a crashed process that the destination has not executed yet. */
  delayed: Version | null

  /** Number of acknowledged events, and the state of the next one. */
  applied: number
  within: 'begin' | 'recorded' | 'remembered' | 'deleted'
  /** How far the end of the copy has come. */
  ending: 'no' | 'reconciled' | 'marked' | 'ended'

  /** Whether the process remembers that it has recorded an identity. It does so a step after the record is stored. */
  hasRecords: boolean
  /** `passed`: the stored position of a read in natural order is after the document. */
  stored: { done: boolean; copied: boolean; record: boolean; position: number; passed: boolean }
  crashesLeft: number
}

/** A step and the state after it. */
type Step = { name: string; to: State }

function sourceStep(state: State): State | null {
  const [step, ...todo] = state.todo
  if (!step) return null
  const next = { ...state, todo }
  // Each step has its own version. The document that exists at the start has version 1.
  const version = 10 + todo.length
  if (step === 'insert') return { ...next, source: version, events: [...state.events, { kind: 'insert', version }] }
  if (step === 'update') return { ...next, source: version, events: [...state.events, { kind: 'update' }] }
  return { ...next, source: null, events: [...state.events, { kind: 'delete' }] }
}

/** The steps of a copy in natural order in addition to those of every copy. */
function naturalSteps(state: State, rules: Rules): Step[] {
  if (!state.natural || state.copy === 'done') return []
  const steps: Step[] = []
  const passed: State = { ...state, copy: 'inserted', held: null }
  // An inserted document gets a new record id, which may be before or after the position of the read.
  const hasMoved = state.events.some(({ kind }) => kind === 'insert')
  if (state.copy === 'begin' && hasMoved) steps.push({ name: 'copy passes the document', to: passed })
  if (state.copy === 'begin' && !rules.resumesAtSameServer) {
    steps.push({ name: 'copy resumes at a record id of another server', to: passed })
  }
  if (state.copy === 'inserted' && hasMoved) {
    steps.push({ name: 'copy reads again', to: { ...state, copy: 'read', held: state.source } })
  }
  if (state.copy === 'inserted' || (state.copy === 'read' && !rules.positionAfterInsert)) {
    const to = { ...state, stored: { ...state.stored, passed: true } }
    if (!state.stored.passed) steps.push({ name: 'position of the copy is stored', to })
  }
  if (state.copy === 'inserted') {
    const to: State = { ...state, copy: 'begin', stored: { ...state.stored, passed: false } }
    steps.push({ name: 'copy begins again', to })
  }
  return steps
}

function copySteps(state: State, rules: Rules): Step[] {
  const done = (to: State): State => ({ ...to, copy: 'done', stored: { ...to.stored, done: true } })
  switch (state.copy) {
    case 'begin': {
      const read: State = { ...state, copy: 'read', held: state.source }
      return [{ name: 'copy reads', to: read }]
    }
    case 'read': {
      if (state.converges) {
        return [
          { name: 'convergence reads the destination', to: { ...state, copy: 'compared', found: state.destination } },
        ]
      }
      const destination = state.destination ?? state.held
      const steps = [{ name: 'copy inserts', to: { ...state, copy: 'inserted' as const, destination, held: null } }]
      if (rules.doneAfterInsert || state.stored.done) return steps
      return [
        ...steps,
        { name: 'copy is stored as done too early', to: { ...state, stored: { ...state.stored, done: true } } },
      ]
    }
    case 'compared': {
      const early: Step[] =
        rules.doneAfterInsert || state.stored.done
          ? []
          : [{ name: 'copy is stored as done too early', to: { ...state, stored: { ...state.stored, done: true } } }]
      return [converged(state, rules), ...early]
    }
    case 'inserted':
      return [{ name: 'copy is stored as done', to: done(state) }]
    case 'done':
      return []
  }
}

function converged(state: State, rules: Rules): Step {
  const { held, found } = state
  const decided: State = { ...state, copy: 'inserted', held: null, found: null }
  const recorded: State = { ...decided, stored: { ...state.stored, record: true } }
  if (held === found) return { name: 'convergence finds nothing', to: decided }
  if (found === null && state.destination === null) {
    return { name: 'convergence inserts', to: { ...decided, destination: held } }
  }
  if (found === null) {
    if (rules.refused === 'ignored') return { name: 'convergence is refused', to: decided }
    return { name: 'convergence records what is refused', to: recorded }
  }
  if (rules.differing === 'recorded') return { name: 'convergence records', to: recorded }
  return { name: 'convergence replaces', to: { ...decided, destination: held } }
}

function applySteps(state: State, rules: Rules): Step[] {
  const event = state.events[state.applied]
  // The records are reconciled in turns. Events are applied between two turns, and their records need no further turn.
  if (!event || state.ending === 'marked') return []
  const acknowledged = (to: State): State => ({ ...to, applied: to.applied + 1, within: 'begin' })
  const present = event.kind === 'insert' ? event.version : event.kind === 'update' ? state.source : null
  if (present !== null && state.within === 'begin') {
    return [{ name: `apply writes ${event.kind}`, to: acknowledged({ ...state, destination: present }) }]
  }
  const records = rules.record !== 'never' && !state.stored.copied
  const recorded: State = { ...state, within: 'recorded', stored: { ...state.stored, record: true } }
  const remembered: State = { ...state, within: 'remembered', hasRecords: true }
  const deleted: State = { ...state, destination: null }
  switch (state.within) {
    case 'begin':
      if (!records) return [{ name: 'apply deletes', to: acknowledged(deleted) }]
      if (rules.record === 'before the delete') return [{ name: 'apply records', to: recorded }]
      return [{ name: 'apply deletes', to: { ...deleted, within: 'deleted' } }]
    case 'deleted':
      return [{ name: 'apply records', to: recorded }]
    case 'recorded':
      if (rules.record === 'before the delete') return [{ name: 'apply remembers', to: remembered }]
      return [{ name: 'apply remembers', to: acknowledged(remembered) }]
    case 'remembered':
      return [{ name: 'apply deletes', to: acknowledged(deleted) }]
  }
}

function endSteps(state: State, rules: Rules): Step[] {
  if (!state.stored.done) return []
  const copied = { ...state.stored, copied: true }
  const isRecorded = state.hasRecords || (rules.asksStore && state.stored.record)
  if (state.ending === 'no' && !isRecorded) {
    // There is nothing to reconcile, so the end does not wait for the event that is being applied.
    return [{ name: 'copy ends', to: { ...state, ending: 'ended', stored: copied } }]
  }
  // The rest runs between two batches of events, so no event is being applied meanwhile.
  if (state.within !== 'begin') return []
  switch (state.ending) {
    case 'no': {
      const destination = state.stored.record ? state.source : state.destination
      const reconciled: State = { ...state, ending: 'reconciled', destination }
      if (rules.reconcilesBeforeCopied) return [{ name: 'records are reconciled', to: reconciled }]
      return [{ name: 'copied is stored', to: { ...state, ending: 'reconciled', stored: copied } }]
    }
    case 'reconciled': {
      const marked: State = { ...state, ending: 'marked', stored: copied }
      if (rules.reconcilesBeforeCopied) return [{ name: 'copied is stored', to: marked }]
      return [{ name: 'records are reconciled', to: { ...marked, destination: state.source } }]
    }
    case 'marked': {
      const stored = { ...state.stored, record: false }
      return [{ name: 'records are forgotten', to: { ...state, ending: 'ended', hasRecords: false, stored } }]
    }
    case 'ended':
      return []
  }
}

function storePosition(state: State, rules: Rules): Step[] {
  const reached = rules.positionAfterWrite ? state.applied : Math.min(state.applied + 1, state.events.length)
  if (state.stored.position >= reached) return []
  return [{ name: 'position is stored', to: { ...state, stored: { ...state.stored, position: reached } } }]
}

function crash(state: State, rules: Rules): Step[] {
  if (state.crashesLeft === 0) return []
  const { stored } = state
  const isInserting = state.converges ? state.copy === 'compared' && state.found === null : state.copy === 'read'
  const underWay = !rules.waitsForDelayedWrites && isInserting ? state.held : null
  const to: State = {
    ...state,
    copy: stored.done ? 'done' : stored.passed ? 'inserted' : 'begin',
    held: null,
    found: null,
    delayed: state.delayed ?? underWay,
    applied: stored.position,
    within: 'begin',
    ending: stored.copied ? 'ended' : 'no',
    hasRecords: rules.assumesRecordsAfterCrash && !stored.copied,
    crashesLeft: state.crashesLeft - 1,
  }
  return [{ name: 'crash', to }]
}

function stepsOf(state: State, rules: Rules): Step[] {
  const source = sourceStep(state)
  const lands: State = { ...state, destination: state.destination ?? state.delayed, delayed: null }
  return [
    ...(source ? [{ name: `source: ${state.todo[0]}`, to: source }] : []),
    ...copySteps(state, rules),
    ...naturalSteps(state, rules),
    ...applySteps(state, rules),
    ...endSteps(state, rules),
    ...storePosition(state, rules),
    ...(state.delayed === null ? [] : [{ name: 'a delayed insert is executed', to: lands }]),
    ...crash(state, rules),
  ]
}

/** Returns true when all work is done, so both sides stay as they are. */
function isQuiet(state: State): boolean {
  return (
    state.todo.length === 0 &&
    state.copy === 'done' &&
    state.ending === 'ended' &&
    state.applied === state.events.length &&
    state.delayed === null
  )
}

export interface Outcome {
  states: number
  quiet: number
  /** The steps after which the destination stays different from the source, or null. */
  violation: string[] | null
  /** The steps that lead to a state without a next step that is not quiet, or null. */
  stuck: string[] | null
}

/** The event of a change from before the start time of the convergence, as it is applied (src/apply/older-than-convergence.ts). */
function olderEvent(kind: SourceStep, { trustsOlderEvents }: Rules): SourceEvent {
  if (!trustsOlderEvents || kind === 'update') return { kind: 'update' }
  return kind === 'insert' ? { kind, version: 5 } : { kind }
}

/** Explores all reachable states breadth-first, up to the first violation. */
export function explore(
  rules: Rules,
  scenario: {
    /** Whether the document exists on the source at the start. */
    exists: boolean
    steps: readonly SourceStep[]
    crashes: number
    /** The document on the destination when the collection converges; undefined for a copy. */
    existing?: 'same' | 'other' | 'nothing'
    /**
     * Changes from before the start time of the convergence whose events are not applied yet. Changes without events,
     * under an excluded name, followed them.
     */
    backlog?: readonly SourceStep[]
    /** Whether the copy reads in natural order. */
    natural?: boolean
  },
): Outcome {
  const start: State = {
    todo: scenario.steps,
    source: scenario.exists ? 1 : null,
    events: (scenario.backlog ?? []).map((kind) => olderEvent(kind, rules)),
    destination: scenario.existing === 'same' ? 1 : scenario.existing === 'other' ? 0 : null,
    converges: scenario.existing !== undefined,
    natural: scenario.natural ?? false,
    copy: 'begin',
    held: null,
    found: null,
    delayed: null,
    applied: 0,
    within: 'begin',
    ending: 'no',
    hasRecords: false,
    stored: { done: false, copied: false, record: false, position: 0, passed: false },
    crashesLeft: scenario.crashes,
  }
  const cameFrom = new Map<string, { key: string; name: string } | null>([[keyOf(start), null]])
  const open: State[] = [start]
  const outcome: Outcome = { states: 0, quiet: 0, violation: null, stuck: null }
  for (let at = 0; at < open.length; at++) {
    const state = open[at] as State
    const key = keyOf(state)
    outcome.states += 1
    if (isQuiet(state)) {
      outcome.quiet += 1
      if (state.destination !== state.source) return { ...outcome, violation: pathTo(key, cameFrom) }
    }
    const steps = stepsOf(state, rules)
    if (steps.length === 0 && !isQuiet(state)) outcome.stuck ??= pathTo(key, cameFrom)
    for (const { name, to } of steps) {
      const next = keyOf(to)
      if (cameFrom.has(next)) continue
      cameFrom.set(next, { key, name })
      open.push(to)
    }
  }
  return outcome
}

/** `events` is left out, because `todo` determines it within one scenario. */
function keyOf({ todo, events: _, stored, ...rest }: State): string {
  return [todo.length, ...Object.values(stored), ...Object.values(rest)].join()
}

function pathTo(key: string, cameFrom: Map<string, { key: string; name: string } | null>): string[] {
  const names: string[] = []
  for (let from = cameFrom.get(key); from; from = cameFrom.get(from.key)) names.push(from.name)
  return names.reverse()
}
