import { Binary, Decimal128, type Document, Double, Int32, Long, ObjectId, Timestamp } from 'mongodb'
import type { Random } from './random.ts'
import { archiveDatabase, type KnownCollection, type World } from './workload-world.ts'

/** The driver types the `_id` of an untyped collection as ObjectId, although almost no `_id` here is one. */
export type Id = ObjectId
export type Identified = Document & { _id: Id }

/** Returns a number in one of four types. The server considers the values equal, and their bytes differ. */
function spelledNumber(random: Random, value: number, plain = 0.7): unknown {
  if (random.chance(plain)) return new Int32(value)
  return random.pick([
    Long.fromNumber(value),
    new Double(value),
    Decimal128.fromString(`${value}`),
    Decimal128.fromString(`${value}.0`),
  ])
}

/**
 * `_id`s come from a few slots, so documents are deleted and inserted again. One slot is one `_id` to the server
 * (strings that differ in case are equal only under a collation), but it is seldom written with the same bytes twice.
 */
export function spelledId(random: Random, slot: number): Id {
  return spell(random, slot) as Id
}

function spell(random: Random, slot: number): unknown {
  switch (slot % 8) {
    case 3: {
      const text = `Key-${slot}`
      return random.pick([text, text, text.toUpperCase(), text.toLowerCase()])
    }
    case 5:
      return { a: spelledNumber(random, slot), b: 'x' }
    case 6:
      return fixedId(slot)
    default:
      return spelledNumber(random, slot)
  }
}

function fixedId(slot: number): unknown {
  const hex = slot.toString(16).padStart(24, '0')
  switch ((slot >> 3) % 6) {
    case 0:
      return new Date(slot * 1000)
    case 1:
      return new Binary(Buffer.from(hex, 'hex'), 0)
    case 2:
      return new Binary(Buffer.from(hex.padStart(32, 'a'), 'hex'), 4)
    case 3:
      return { list: [slot, { deep: Long.fromInt(slot) }] }
    case 4:
      // Only raw documents use null: the driver treats it as a missing `_id` and generates one from the current time.
      return slot === 38 ? '' : slot === 86 ? true : new Timestamp({ t: slot, i: 1 })
    default:
      return new ObjectId(hex)
  }
}

/**
 * Returns the slot of a document. Most operations use a few slots. In the archive, which is large, they are spread so
 * that some hit the range that is being copied.
 */
export function slotIn(random: Random, { database }: KnownCollection): number {
  if (database === archiveDatabase) return random.int(0, 20_000)
  return random.chance(0.7) ? random.int(0, 39) : random.int(40, 399)
}

/**
 * Returns a value for a field whose type changes between string, array, object and number, so that updates of the field
 * are valid only in their order.
 */
function flippingValue(random: Random): unknown {
  return random.pick<() => unknown>([
    () => random.word(6),
    () => [random.int(0, 9), random.word(3), { x: random.int(0, 9) }],
    () => [[1, 2], [random.int(0, 9)], null],
    () => ({ x: random.int(0, 9), y: { z: random.word(4) }, list: [1, 2, 3] }),
    () => spelledNumber(random, random.int(0, 9), 0.2),
    () => null,
    () => [],
  ])()
}

function point(random: Random, outside = 0): unknown {
  if (random.chance(outside)) return { type: 'Point', coordinates: [999, random.int(-80, 80)] }
  return { type: 'Point', coordinates: [random.int(-179, 179), random.int(-80, 80)] }
}

/** Returns a date far in the future, so that no TTL index ever deletes a document. */
function farDate(random: Random): Date {
  return new Date(Date.UTC(2090, random.int(0, 11), random.int(1, 28), random.int(0, 23)))
}

function text(random: Random, words: number): string {
  return Array.from({ length: words }, () => random.word(random.int(2, 9))).join(' ')
}

/**
 * Returns padding that is cheap to generate. It is not a run of one byte, which the storage engine would compress to
 * almost nothing.
 */
export function padding(random: Random, bytes: number): Binary {
  const block = random.bytes(1021)
  return new Binary(Buffer.alloc(bytes, block), 0)
}

export function newDocument(world: World, id: Id): Identified {
  const { random } = world
  const document: Identified = { _id: id, n: random.int(0, 99), u: `u${world.next()}` }
  if (random.chance(0.8)) document['s'] = random.chance(0.9) ? text(random, random.int(1, 5)) : 'Straße strasse STRASSE'
  if (random.chance(0.7)) document['f'] = flippingValue(random)
  if (random.chance(0.6)) document['a'] = Array.from({ length: random.int(0, 8) }, () => random.int(0, 20))
  if (random.chance(0.6)) document['o'] = { x: random.int(0, 9), y: { z: random.word(5), w: [1, { v: 2 }] } }
  if (random.chance(0.4)) document['geo'] = point(random)
  if (random.chance(0.4)) document['t'] = text(random, random.int(3, 12))
  if (random.chance(0.3)) document['expires'] = farDate(random)
  if (random.chance(0.2)) document[random.pick(['dotted.name', '$dollar', '', '__proto__x'])] = random.int(0, 9)
  if (random.chance(0.03)) document['pad'] = padding(random, random.int(1000, 10_000))
  return document
}

/** Returns the fields of a replacement or an upsert, without an `_id`. */
export function newFields(world: World): Document {
  // The server accepts a top-level `$` name in an insert, but rejects it in the replacement of an existing document.
  const { _id, $dollar, ...fields } = newDocument(world, null as unknown as Id)
  return fields
}

type Updates = Record<string, Record<string, unknown>>

/** Returns update operators on one to four different fields, because the server rejects two changes of one path. */
export function operators(world: World): Document {
  const { random } = world
  const updates: Updates = {}
  const put = (operator: string, path: string, value: unknown) => {
    updates[operator] = { ...updates[operator], [path]: value }
  }
  const changes: readonly (() => void)[] = [
    () =>
      random.pick([
        () => put('$inc', 'n', 1),
        () => put('$set', 'n', spelledNumber(random, random.int(0, 99))),
        () => put('$mul', 'n', 2),
        () => put('$unset', 'n', ''),
      ])(),
    () => put(random.chance(0.8) ? '$set' : '$unset', 's', text(random, 3)),
    () => changeFlipping(random, put),
    () => changeArray(random, put),
    () =>
      put(
        random.chance(0.8) ? '$set' : '$unset',
        random.pick(['o.x', 'o.y.z', 'o.y.w.1.v', `o.${random.word(1)}`, 'o.10', 'o.2']),
        flippingValue(random),
      ),
    () => put('$set', 'geo', point(random, 0.02)),
    () => put('$set', 't', text(random, 6)),
    () => put('$set', 'u', random.chance(0.9) ? `u${world.next()}` : `u${random.int(0, 50)}`),
    () => put('$set', 'expires', farDate(random)),
    () => put('$rename', random.pick(['dotted', 'pad']), `moved_${random.word(1)}`),
  ]
  for (const change of random.shuffle(changes).slice(0, random.int(1, 4))) change()
  return updates
}

function changeFlipping(random: Random, put: (operator: string, path: string, value: unknown) => void): void {
  const path = random.weighted([
    [6, 'f'],
    [1, 'f.x'],
    [1, 'f.y.z'],
    [1, 'f.0'],
    [1, 'f.2.x'],
    [1, 'f.1.0'],
    [1, 'f.list.2'],
  ] as const)
  put(random.chance(0.8) ? '$set' : '$unset', path, flippingValue(random))
}

function changeArray(random: Random, put: (operator: string, path: string, value: unknown) => void): void {
  const some = Array.from({ length: random.int(1, 6) }, () => random.int(0, 20))
  random.pick<() => void>([
    () => put('$push', 'a', random.int(0, 20)),
    () => put('$push', 'a', { $each: some, $slice: random.pick([-10, 5, 12, 0]) }),
    () => put('$push', 'a', { $each: some, $position: random.int(0, 3), $sort: random.pick([1, -1]), $slice: 20 }),
    () => put('$addToSet', 'a', { $each: some }),
    () => put('$pull', 'a', random.int(0, 20)),
    () => put('$pullAll', 'a', some),
    () => put('$pop', 'a', random.pick([1, -1])),
    () => put('$set', `a.${random.int(0, 6)}`, random.int(0, 99)),
    () => put('$set', 'a', some),
  ])()
}

/**
 * Returns a pipeline update, which rewrites the whole document or changes a field whose name no update operator
 * supports.
 */
export function pipeline(world: World): Document[] {
  const { random } = world
  const number = random.int(0, 999)
  return random.pick<() => Document[]>([
    () => [
      {
        $set: {
          n: { $add: [{ $ifNull: [{ $convert: { input: '$n', to: 'int', onError: 0 } }, 0] }, 1] },
          f: { $literal: flippingValue(random) },
        },
      },
    ],
    () => [
      { $set: { 'o.p': number, a: { $slice: [{ $cond: [{ $isArray: '$a' }, '$a', [number]] }, 3] } } },
      { $unset: 'o.x' },
    ],
    () => [{ $replaceWith: { $mergeObjects: [{ z: number }, '$$ROOT', { $literal: { s: text(random, 2) } }] } }],
    () => [{ $replaceWith: { $setField: { field: 'dotted.name', input: '$$ROOT', value: number } } }],
    () => [{ $replaceWith: { $setField: { field: { $literal: '$dollar' }, input: '$$ROOT', value: number } } }],
    () => [{ $replaceWith: { $unsetField: { field: 'dotted.name', input: '$$ROOT' } } }],
    () => [{ $set: { f: { $cond: [{ $isArray: '$f' }, { was: 'array' }, ['$f', number]] } } }],
    () => [{ $unset: ['pad', 'f'] }, { $set: { q: { r: { s: number } } } }],
  ])()
}
