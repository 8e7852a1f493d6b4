/**
 * A small model of one document of a collection whose shard key is not `_id`, after its copy. It tries every interleaving, every
 * division of the events into batches, and every crash. It mirrors `fold` (src/documents/identity.ts),
 * src/documents/reconcile-documents.ts and src/documents/reconcile-unread.ts.
 *
 *   source       insert, update, replace, delete; `move`: another shard key on another shard, a delete and an insert of one
 *                time in either order; `rekey`: another shard key on the same shard, an update
 *   apply        a batch of events ─▶ reads ─▶ deletes ─▶ upsert ─▶ acknowledged ─▶ position stored now and then
 *   read by _id  asks each shard at another moment, so it may find a document that moves twice, or never
 *   crash        the events after the stored position are applied again
 *
 * Each rule can be disabled to show why it is needed.
 */
export interface Rules {
  /** What is removed when the only event is a delete and the source has no document under the key of that event. */
  deleted: 'that key' | 'all that the destination has'
  /** What happens when the document of an update is not found under the key of its event. */
  missing: 'read by _id' | 'removed'
  /** What happens, when the document is written, to other keys under which the destination has it. */
  others: 'removed' | 'kept'
  /** Whether a document with several events, one of which is a delete, is read by `_id`. */
  foldedDelete: 'read by _id' | 'removed under the key of the delete'
  /** How a document is written if its first event is an insert and a read by `_id` finds it. */
  foldedInsert: 'replaced' | 'inserted'
}

export const rules: Rules = {
  deleted: 'that key',
  missing: 'read by _id',
  others: 'removed',
  foldedDelete: 'read by _id',
  foldedInsert: 'replaced',
}

/** Behaviour of the servers, which tandem cannot choose. */
export interface Servers {
  /** The key that the event of a `rekey` names. 6.0.27 names the former one. */
  rekeyNames: 'the former key' | 'the new key'
  /** Both keys are on one shard of the destination, whose `_id` index refuses a second document. */
  oneShard: boolean
}

type Key = 'a' | 'b'
const keys: readonly Key[] = ['a', 'b']
const other = (key: Key): Key => (key === 'a' ? 'b' : 'a')
export type SourceStep =
  | 'insert a'
  | 'insert b'
  | 'update'
  | 'replace'
  | 'replace and rekey'
  | 'move'
  | 'rekey'
  | 'delete'

interface Document {
  key: Key
  version: number
}

interface Event {
  kind: 'insert' | 'update' | 'replace' | 'delete'
  key: Key
  document: Document | null
}

/** What one batch knows about the document, as `Identity`. */
interface Batch {
  upTo: number
  key: Key | null
  document: Document | null
  deleted: boolean
  fresh: boolean
  folded: boolean
  doing: 'begin' | 'insert' | 'place' | 'by id' | 'remove' | 'write'
  /** The shards that a read by `_id` has asked so far, and the documents that it has found there. */
  asked: string
  found: readonly Document[]
  /** The keys that remain to be removed, and the document that remains to be written. */
  removes: string
  writes: Document | null
}

interface State {
  todo: readonly SourceStep[]
  source: Document | null
  version: number
  events: readonly Event[]
  /** The version of the document under each key, or null. */
  destination: { a: number | null; b: number | null }
  applied: number
  stored: number
  batch: Batch | null
  crashesLeft: number
}

type Step = { name: string; to: State }

const batchMax = 3

function sourceSteps(state: State, { rekeyNames }: Servers): Step[] {
  const [step, ...todo] = state.todo
  if (!step) return []
  const version = state.version + 1
  const became = (source: Document | null, ...events: Event[]): Step => ({
    name: `source: ${step}`,
    to: { ...state, todo, version, source, events: [...state.events, ...events] },
  })
  const { source } = state
  if (step === 'insert a' || step === 'insert b') {
    const document = { key: step === 'insert a' ? ('a' as const) : ('b' as const), version }
    return [became(document, { kind: 'insert', key: document.key, document })]
  }
  if (!source) return [became(null)]
  const { key } = source
  const stays = { key, version }
  const leaves = { key: other(key), version }
  switch (step) {
    case 'update':
      return [became(stays, { kind: 'update', key, document: null })]
    case 'replace':
      return [became(stays, { kind: 'replace', key, document: stays })]
    case 'replace and rekey':
      return [became(leaves, { kind: 'replace', key, document: leaves })]
    case 'rekey':
      return [
        became(leaves, { kind: 'update', key: rekeyNames === 'the former key' ? key : leaves.key, document: null }),
      ]
    case 'delete':
      return [became(null, { kind: 'delete', key, document: null })]
    case 'move': {
      const [gone, comes]: Event[] = [
        { kind: 'delete', key, document: null },
        { kind: 'insert', key: leaves.key, document: leaves },
      ]
      return [became(leaves, gone as Event, comes as Event), became(leaves, comes as Event, gone as Event)]
    }
  }
}

function batchOf(events: readonly Event[], from: number, upTo: number): Batch {
  const part = events.slice(from, upTo)
  const [first] = part as [Event]
  const newest = part.at(-1) as Event
  return {
    ...{ upTo, doing: 'begin', asked: '', found: [], removes: '', writes: null },
    key: part.every(({ key }) => key === first.key) ? first.key : null,
    document: newest.document,
    deleted: newest.kind === 'delete',
    fresh: first.kind === 'insert' && part.every(({ kind }) => kind !== 'delete'),
    folded: part.length > 1,
  }
}

/** Returns the next steps of applying a batch. Each step is one command that reads, removes or writes. The source may change between two steps. */
function applySteps(state: State, rules: Rules, { oneShard }: Servers): Step[] {
  const { batch, source, destination } = state
  if (!batch) {
    const sizes = Array.from({ length: Math.min(batchMax, state.events.length - state.applied) }, (_, at) => at + 1)
    return sizes.map((size) => ({
      name: `apply takes ${size}`,
      to: { ...state, batch: batchOf(state.events, state.applied, state.applied + size) },
    }))
  }
  const next = (name: string, change: Partial<Batch>, more: Partial<State> = {}): Step[] => [
    { name, to: { ...state, ...more, batch: { ...batch, ...change } } },
  ]
  const acknowledged = (name: string, more: Partial<State> = {}): Step[] => [
    { name, to: { ...state, ...more, batch: null, applied: batch.upTo } },
  ]
  const existing = keys.filter((key) => destination[key] !== null)
  switch (batch.doing) {
    case 'begin': {
      if (batch.document && !batch.folded)
        return next('event has the document', { doing: batch.fresh ? 'insert' : 'place', writes: batch.document })
      const isDelete = batch.deleted && (!batch.folded || rules.foldedDelete !== 'read by _id')
      if (batch.key === null || (batch.deleted && !isDelete)) return next('asks by _id', { doing: 'by id' })
      const found = source?.key === batch.key ? source : null
      if (found) return next('reads its key', { doing: batch.fresh ? 'insert' : 'place', writes: found })
      if (isDelete) {
        const removes = rules.deleted === 'that key' ? batch.key : existing.join('')
        return next('does not find its key', { doing: 'remove', removes })
      }
      if (rules.missing === 'removed') return next('does not find its key', { doing: 'remove', removes: batch.key })
      return next('does not find its key', { doing: 'by id' })
    }
    case 'insert': {
      const document = batch.writes as Document
      const isRefused = destination[document.key] !== null || (oneShard && existing.length > 0)
      if (isRefused) return next('insert is refused', { doing: 'by id', writes: null })
      return acknowledged('inserts', { destination: { ...destination, [document.key]: document.version } })
    }
    case 'place': {
      const isElsewhere = existing.some((key) => key !== batch.writes?.key)
      return isElsewhere && rules.others === 'removed'
        ? next('is elsewhere', { doing: 'by id', writes: null })
        : next('is in place', { doing: 'write' })
    }
    case 'by id': {
      const unasked = keys.filter((key) => !batch.asked.includes(key))
      if (unasked.length > 0) {
        return unasked.flatMap((key) => {
          const found = source?.key === key ? [...batch.found, source] : batch.found
          return next(`asks the shard of ${key}`, { asked: batch.asked + key, found })
        })
      }
      // The document has moved meanwhile, so it must be read again.
      if (batch.found.length > 1) return next('found it twice', { asked: '', found: [] })
      const [writes = null] = batch.found
      const isRefused = writes !== null && (destination[writes.key] !== null || (oneShard && existing.length > 0))
      if (writes && batch.fresh && !isRefused && rules.foldedInsert === 'inserted')
        return acknowledged('inserts', { destination: { ...destination, [writes.key]: writes.version } })
      const removes = existing.filter((key) => key !== writes?.key).join('')
      const isKept = writes !== null && rules.others === 'kept'
      return next('was asked', { doing: 'remove', writes, removes: isKept ? '' : removes })
    }
    case 'remove': {
      if (batch.removes !== '') {
        const key = batch.removes[0] as Key
        return next(
          `removes ${key}`,
          { removes: batch.removes.slice(1) },
          { destination: { ...destination, [key]: null } },
        )
      }
      return batch.writes ? next('removed', { doing: 'write' }) : acknowledged('removed')
    }
    case 'write': {
      const { key, version } = batch.writes as Document
      return acknowledged('writes', { destination: { ...destination, [key]: version } })
    }
  }
}

function stepsOf(state: State, rules: Rules, servers: Servers): Step[] {
  const steps = [...sourceSteps(state, servers), ...applySteps(state, rules, servers)]
  if (!state.batch && state.stored < state.applied)
    steps.push({ name: 'position is stored', to: { ...state, stored: state.applied } })
  if (state.crashesLeft > 0) {
    const crashesLeft = state.crashesLeft - 1
    steps.push({ name: 'crash', to: { ...state, batch: null, applied: state.stored, crashesLeft } })
  }
  return steps
}

export interface Outcome {
  states: number
  quiet: number
  /** The steps after which the destination stays different from the source, or null. */
  violation: string[] | null
}

function keyOf({ todo, source, events, destination, applied, stored, batch, crashesLeft }: State): string {
  const text = (document: Document | null): string => (document ? `${document.key}${document.version}` : '-')
  const order = events.map(({ kind, key }) => kind[0] + key).join('')
  const own = batch && [
    ...[batch.upTo, batch.doing, batch.asked, batch.found.map(text).join('+'), batch.removes, text(batch.writes)],
  ]
  return [todo.length, text(source), order, destination.a, destination.b, applied, stored, crashesLeft, own].join()
}

/** Explores all reachable states breadth-first, up to the first violation. The document exists under `a` at the start. */
export function explore(steps: readonly SourceStep[], crashes: number, rules: Rules, servers: Servers): Outcome {
  const start: State = {
    ...{ todo: steps, source: { key: 'a', version: 1 }, version: 1, events: [], destination: { a: 1, b: null } },
    ...{ applied: 0, stored: 0, batch: null, crashesLeft: crashes },
  }
  const cameFrom = new Map<string, { key: string; name: string } | null>([[keyOf(start), null]])
  const open: State[] = [start]
  const outcome: Outcome = { states: 0, quiet: 0, violation: null }
  for (let at = 0; at < open.length; at++) {
    const state = open[at] as State
    const key = keyOf(state)
    outcome.states += 1
    if (state.todo.length === 0 && !state.batch && state.applied === state.events.length) {
      outcome.quiet += 1
      const { source, destination } = state
      if (keys.some((one) => destination[one] !== (source?.key === one ? source.version : null))) {
        const names: string[] = []
        for (let from = cameFrom.get(key); from; from = cameFrom.get(from.key)) names.push(from.name)
        return { ...outcome, violation: names.reverse() }
      }
    }
    for (const { name, to } of stepsOf(state, rules, servers)) {
      const next = keyOf(to)
      if (cameFrom.has(next)) continue
      cameFrom.set(next, { key, name })
      open.push(to)
    }
  }
  return outcome
}
