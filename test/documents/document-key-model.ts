/**
 * A small model of the documents with one `_id` in a collection whose shard key is not `_id`, after its copy. It tries every
 * interleaving, every division of the events into batches, and every crash. It mirrors `fold` (src/documents/identity.ts),
 * src/documents/reconcile-documents.ts, src/documents/reconcile-unread.ts and src/documents/repeated-ids.ts.
 *
 *   source       insert, update, replace, delete; `move`: another shard key on another shard, a delete and an insert of one
 *                time in either order; `rekey`: another shard key on the same shard, an update
 *   keys         the source has `a` and `c` on one shard and `b` on another, so it can have a document under `b` beside
 *                one under `a` or `c`. A step without a key concerns the only document, which moves between `a` and `b`
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
  /** What happens when a read by `_id` finds several documents: all are written, or the first one alone. */
  several: 'all' | 'the first'
  /** Whether all documents with the `_id` are read before one is written. */
  complete: boolean
  /** Whether several documents are read again before one of them is written under a key that the destination lacks. */
  confirmed: boolean
}

export const rules: Rules = {
  deleted: 'that key',
  missing: 'read by _id',
  others: 'removed',
  foldedDelete: 'read by _id',
  foldedInsert: 'replaced',
  several: 'all',
  complete: true,
  confirmed: true,
}

/** Behaviour of the servers, which tandem cannot choose. */
export interface Servers {
  /** The key that the event of a `rekey` names. 6.0.27 names the former one. */
  rekeyNames: 'the former key' | 'the new key'
  /** The shard of the destination that has each key. The `_id` index of a shard refuses a second document. */
  shardOf: Record<Key, number>
}

type Key = 'a' | 'b' | 'c'
const keys: readonly Key[] = ['a', 'b', 'c']
const other = (key: Key): Key => (key === 'a' ? 'b' : 'a')
/** The other key on the same shard of the source. */
const beside = (key: Key): Key => (key === 'a' ? 'c' : 'a')
export type SourceStep =
  | 'insert a'
  | 'insert b'
  | 'update'
  | 'replace'
  | 'replace and rekey'
  | 'move'
  | 'rekey'
  | 'delete'
  | `${'update' | 'replace' | 'move' | 'rekey' | 'delete'} ${Key}`

interface Document {
  key: Key
  version: number
}

interface Event {
  kind: 'insert' | 'update' | 'replace' | 'delete'
  key: Key
  document: Document | null
}

/** The version of the document under each key, or null. */
type Contents = Record<Key, number | null>

/** What one batch knows about the document, as `Identity`. */
interface Batch {
  upTo: number
  key: Key | null
  document: Document | null
  deleted: boolean
  fresh: boolean
  folded: boolean
  doing: 'begin' | 'insert' | 'place' | 'by id' | 'remove' | 'write' | 'write several'
  /** The shards that a read by `_id` has asked so far, and the documents that it has found there. */
  asked: string
  found: readonly Document[]
  /** The keys that remain to be removed, and the document that remains to be written. */
  removes: string
  writes: readonly Document[]
  /** Several documents were found twice. */
  isConfirmed: boolean
}

interface State {
  todo: readonly SourceStep[]
  source: Contents
  version: number
  events: readonly Event[]
  destination: Contents
  applied: number
  stored: number
  batch: Batch | null
  crashesLeft: number
}

type Step = { name: string; to: State }

const batchMax = 3

const without = (contents: Contents, key: Key): Contents => ({ ...contents, [key]: null })
const having = (contents: Contents, { key, version }: Document): Contents => ({ ...contents, [key]: version })
const keysOf = (contents: Contents): Key[] => keys.filter((key) => contents[key] !== null)

/** Returns the source's next steps: none if a shard of the source refuses the step because of its `_id` index. */
function sourceSteps(state: State, { rekeyNames }: Servers): Step[] {
  const [step, ...todo] = state.todo
  if (!step) return []
  const { source } = state
  const version = state.version + 1
  const became = (contents: Contents, ...events: Event[]): Step => ({
    name: `source: ${step}`,
    to: { ...state, todo, version, source: contents, events: [...state.events, ...events] },
  })
  const [, kind = '', named] = /^(.*?)(?: ([abc]))?$/.exec(step) as unknown as [string, string, Key?]
  const isFree = (key: Key, leaving?: Key): boolean =>
    keysOf(source).every((one) => one === leaving || (one !== key && (one === 'b' || key === 'b')))
  if (kind === 'insert') {
    const document = { key: named as Key, version }
    if (!isFree(document.key)) return [became(source)]
    return [became(having(source, document), { kind: 'insert', key: document.key, document })]
  }
  const key = named ?? keysOf(source)[0]
  if (!key || source[key] === null) return [became(source)]
  const stays = { key, version }
  const rest = without(source, key)
  const changed = (to: Key) => ({ key: to, version })
  switch (kind) {
    case 'update':
      return [became(having(source, stays), { kind: 'update', key, document: null })]
    case 'replace':
      return [became(having(source, stays), { kind: 'replace', key, document: stays })]
    case 'replace and rekey': {
      const leaves = changed(other(key))
      return [became(having(rest, leaves), { kind: 'replace', key, document: leaves })]
    }
    case 'rekey': {
      const leaves = changed(named ? beside(named) : other(key))
      if (named === 'b' || (named && !isFree(leaves.key, key))) return [became(source)]
      return [
        became(having(rest, leaves), {
          kind: 'update',
          key: rekeyNames === 'the former key' ? key : leaves.key,
          document: null,
        }),
      ]
    }
    case 'delete':
      return [became(rest, { kind: 'delete', key, document: null })]
    case 'move': {
      const leaves = changed(key === 'b' ? 'a' : 'b')
      if (!isFree(leaves.key, key)) return [became(source)]
      const gone: Event = { kind: 'delete', key, document: null }
      const comes: Event = { kind: 'insert', key: leaves.key, document: leaves }
      return [became(having(rest, leaves), gone, comes), became(having(rest, leaves), comes, gone)]
    }
    default:
      throw new Error(`unknown step ${step}`)
  }
}

function batchOf(events: readonly Event[], from: number, upTo: number): Batch {
  const part = events.slice(from, upTo)
  const [first] = part as [Event]
  const newest = part.at(-1) as Event
  return {
    ...{ upTo, doing: 'begin', asked: '', found: [], removes: '', writes: [], isConfirmed: false },
    key: part.every(({ key }) => key === first.key) ? first.key : null,
    document: newest.document,
    deleted: newest.kind === 'delete',
    fresh: first.kind === 'insert' && part.every(({ kind }) => kind !== 'delete'),
    folded: part.length > 1,
  }
}

/** Returns the next steps of applying a batch. Each step is one command that reads, removes or writes. The source may change between two steps. */
function applySteps(state: State, rules: Rules, { shardOf }: Servers): Step[] {
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
  const again = (name: string): Step[] =>
    next(name, { doing: 'by id', asked: '', found: [], writes: [], removes: '', isConfirmed: false })
  const existing = keysOf(destination)
  const isRefused = (key: Key): boolean => existing.some((one) => shardOf[one] === shardOf[key])
  switch (batch.doing) {
    case 'begin': {
      if (batch.document && !batch.folded)
        return next('event has the document', { doing: batch.fresh ? 'insert' : 'place', writes: [batch.document] })
      const isDelete = batch.deleted && (!batch.folded || rules.foldedDelete !== 'read by _id')
      if (batch.key === null || (batch.deleted && !isDelete)) return next('asks by _id', { doing: 'by id' })
      const version = source[batch.key]
      if (version !== null) {
        const writes = [{ key: batch.key, version }]
        return next('reads its key', { doing: batch.fresh ? 'insert' : 'place', writes })
      }
      if (isDelete) {
        const removes = rules.deleted === 'that key' ? batch.key : existing.join('')
        return next('does not find its key', { doing: 'remove', removes })
      }
      if (rules.missing === 'removed') return next('does not find its key', { doing: 'remove', removes: batch.key })
      return next('does not find its key', { doing: 'by id' })
    }
    case 'insert': {
      const [document] = batch.writes as [Document]
      if (isRefused(document.key)) return next('insert is refused', { doing: 'by id', writes: [] })
      return acknowledged('inserts', { destination: having(destination, document) })
    }
    case 'place': {
      const isElsewhere = existing.some((key) => key !== batch.writes[0]?.key)
      return isElsewhere && rules.others === 'removed'
        ? next('is elsewhere', { doing: 'by id', writes: [] })
        : next('is in place', { doing: 'write' })
    }
    case 'by id': {
      const unasked = keys.filter((key) => !batch.asked.includes(key))
      const [early] = batch.found
      if (unasked.length > 0 && early && !rules.complete && batch.writes.length === 0) {
        const removes = existing.filter((key) => key !== early.key).join('')
        return next('writes before all are read', { doing: 'remove', writes: [early], removes })
      }
      if (unasked.length > 0) {
        return unasked.flatMap((key) => {
          const version = source[key]
          const found = version === null ? batch.found : [...batch.found, { key, version }]
          return next(`asks for ${key}`, { asked: [...batch.asked, key].sort().join(''), found })
        })
      }
      if (batch.found.length > 1 && rules.several === 'all') return several()
      if (batch.isConfirmed) return again('it was moving')
      const [document] = batch.found
      if (document && batch.fresh && !isRefused(document.key) && rules.foldedInsert === 'inserted')
        return acknowledged('inserts', { destination: having(destination, document) })
      const removes = existing.filter((key) => key !== document?.key).join('')
      const isKept = document !== undefined && rules.others === 'kept'
      return next('was asked', { doing: 'remove', writes: document ? [document] : [], removes: isKept ? '' : removes })
    }
    case 'remove': {
      if (batch.removes !== '') {
        const key = batch.removes[0] as Key
        return next(`removes ${key}`, { removes: batch.removes.slice(1) }, { destination: without(destination, key) })
      }
      if (batch.writes.length > 1) return next('removed', { doing: 'write several' })
      return batch.writes.length > 0 ? next('removed', { doing: 'write' }) : acknowledged('removed')
    }
    case 'write':
      if (!rules.complete && batch.asked !== '' && batch.asked.length < keys.length)
        return next(
          'has written one',
          { doing: 'by id' },
          { destination: having(destination, batch.writes[0] as Document) },
        )
      return acknowledged('writes', { destination: having(destination, batch.writes[0] as Document) })
    case 'write several': {
      const document = batch.writes.find(({ key, version }) => destination[key] !== version)
      if (!document) return acknowledged('has written several')
      if (isRefused(document.key)) return again('insert of one of several is refused')
      return next(`writes ${document.key}`, {}, { destination: having(destination, document) })
    }
  }

  function several(): Step[] {
    const { found, isConfirmed } = batch as Batch
    const isKnown = found.length === existing.length && found.every(({ key }) => existing.includes(key))
    if (rules.confirmed && !isKnown && !isConfirmed)
      return next('found several', { asked: '', found: [], isConfirmed: true })
    const isWanted = (key: Key): boolean => found.some((one) => one.key === key && one.version === destination[key])
    const removes = existing.filter((key) => !isWanted(key)).join('')
    return next('has confirmed several', { doing: 'remove', writes: found, removes })
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
  const text = (documents: readonly Document[]): string => documents.map(({ key, version }) => key + version).join('+')
  const held = (contents: Contents): string => keys.map((key) => contents[key] ?? '-').join('')
  const order = events.map(({ kind, key }) => kind[0] + key).join('')
  const own = batch && [
    ...[batch.upTo, batch.doing, batch.asked, text(batch.found), batch.removes, text(batch.writes), batch.isConfirmed],
  ]
  return [todo.length, held(source), order, held(destination), applied, stored, crashesLeft, own].join()
}

/**
 * Explores all reachable states breadth-first, up to the first violation. Both clusters have the same documents at the
 * start, by default one under `a`.
 */
export function explore(
  steps: readonly SourceStep[],
  crashes: number,
  rules: Rules,
  servers: Servers,
  begun: Contents = { a: 1, b: null, c: null },
): Outcome {
  const start: State = {
    ...{ todo: steps, source: begun, version: 1, events: [], destination: begun },
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
      if (keys.some((one) => destination[one] !== source[one])) {
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
