import { Binary, Decimal128, Double, Int32, Long, MaxKey, MinKey, ObjectId, Timestamp } from 'mongodb'
import type { Random } from './random.ts'

/** Values that are lost or changed by tools that decode documents. */
const oddValues: readonly ((random: Random) => unknown)[] = [
  () => new Double(-0),
  () => Number.NaN,
  () => Number.POSITIVE_INFINITY,
  (random) => new Int32(random.below(7)),
  (random) => Long.fromNumber(random.below(7)),
  (random) => new Double(random.below(7)),
  () => Long.MAX_VALUE,
  (random) => Decimal128.fromString(random.pick(['1.10', '1.1', '-0', 'NaN', '0E+10', '9E+6144'])),
  (random) => new Binary(Buffer.alloc(random.below(20), random.below(256)), random.pick([0, 4, 5, 128])),
  (random) => new Timestamp({ t: 1 + random.below(1_000), i: random.below(1_000) }),
  () => new Date(-1),
  () => new MinKey(),
  () => new MaxKey(),
  () => null,
  () => '',
  () => 'é, e\u0301 and 😀',
  () => /^a.*\d$/i,
  () => new ObjectId(),
  (random) => Array.from({ length: random.below(5) }, (_, at) => ({ at, even: at % 2 === 0 })),
  (random) => ({ 10: 1, 2: random.below(3), '': 'an empty name', 'a.b': 1 }),
]

/** Returns fields of about 300 bytes. `n` and `text` have indexes, and `expires` has a TTL index. */
export function newFields(random: Random): Record<string, unknown> {
  return {
    n: random.below(1_000),
    odd: random.pick(oddValues)(random),
    text: `${random.below(100)} ${'x'.repeat(random.below(400))}`,
    ...(random.fraction() < 0.1 && { expires: new Date('2999-01-01') }),
  }
}

/** Returns an `_id` of one of several types. Some of the `_id`s are equal in value but not in type. */
export function idOf(random: Random, ids: number): unknown {
  const number = random.below(ids)
  return random.pick<() => unknown>([
    () => number,
    () => number,
    () => Long.fromNumber(number),
    () => `k${number}`,
    () => ({ a: number, b: 'x' }),
  ])()
}
