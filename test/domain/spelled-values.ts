import fc from 'fast-check'
import type { TypedValue } from '../../src/domain/raw-bson.ts'
import { cString, documentOf, int32, lengthPrefixed, typed } from './bson-arbitraries.ts'

/**
 * A value of `_id` with all its encodings: 1, NumberLong(1), 1.0 and NumberDecimal("1.000") are one value. Two shapes have the
 * same `value` exactly if they are the same value. `value` is derived from how the value was made, not from its bytes.
 */
export interface Shape {
  value: string
  /** One of the encodings, chosen by the numbers that `choose` returns. */
  spell: (choose: () => number) => TypedValue
}

const decimalDigitsMax = 34
const lowestExponent = -6176
const highestExponent = 6111

/** The number coefficient × 10^exponent. The coefficient has no trailing zeros. */
interface Exact {
  coefficient: bigint
  exponent: number
}

function exact(coefficient: bigint, exponent: number): Exact {
  let [digits, power] = [coefficient, exponent]
  if (digits === 0n) return { coefficient: 0n, exponent: 0 }
  while (digits % 10n === 0n) {
    digits /= 10n
    power += 1
  }
  return { coefficient: digits, exponent: power }
}

/** Returns the exact value of a double, computed from its sign, exponent and fraction bits (IEEE 754). */
function exactOfDouble(value: number): Exact {
  const bits = Buffer.alloc(8)
  bits.writeDoubleBE(value)
  const raw = bits.readBigUInt64BE()
  const biased = Number((raw >> 52n) & 0x7ffn)
  const fraction = raw & 0xf_ffff_ffff_ffffn
  const significand = biased === 0 ? fraction : fraction | (1n << 52n)
  const twos = Math.max(biased, 1) - 1075
  const signed = raw >> 63n === 1n ? -significand : significand
  return twos >= 0 ? exact(signed << BigInt(twos), 0) : exact(signed * 5n ** BigInt(-twos), twos)
}

const typedDouble = (value: number): TypedValue => {
  const payload = Buffer.alloc(8)
  payload.writeDoubleLE(value)
  return typed(0x01, payload)
}

const typedLong = (value: bigint): TypedValue => {
  const payload = Buffer.alloc(8)
  payload.writeBigInt64LE(value)
  return typed(0x12, payload)
}

const typedBits128 = (bits: bigint): TypedValue => {
  const payload = Buffer.alloc(16)
  payload.writeBigUInt64LE(bits & 0xffff_ffff_ffff_ffffn, 0)
  payload.writeBigUInt64LE(bits >> 64n, 8)
  return typed(0x13, payload)
}

const decimalBits = (negative: boolean, coefficient: bigint, exponent: number): bigint =>
  (negative ? 1n << 127n : 0n) | (BigInt(exponent - lowestExponent) << 113n) | coefficient

const magnitude = (value: bigint): bigint => (value < 0n ? -value : value)

function decimals({ coefficient, exponent }: Exact): TypedValue[] {
  const spellings: TypedValue[] = []
  let [digits, power] = [magnitude(coefficient), exponent]
  while (digits.toString().length <= decimalDigitsMax) {
    if (power >= lowestExponent && power <= highestExponent) {
      spellings.push(typedBits128(decimalBits(coefficient < 0n, digits, power)))
    }
    digits *= 10n
    power -= 1
  }
  return spellings
}

const zeros: TypedValue[] = [
  typed(0x10, int32(0)),
  typedLong(0n),
  typedDouble(0),
  typedDouble(-0),
  typedBits128(decimalBits(false, 0n, 0)),
  typedBits128(decimalBits(true, 0n, 0)),
  typedBits128(decimalBits(false, 0n, lowestExponent)),
  typedBits128(decimalBits(true, 0n, highestExponent)),
]

function spellingsOf(number: Exact): TypedValue[] {
  if (number.coefficient === 0n) return zeros
  const spellings = decimals(number)
  const nearest = Number(`${number.coefficient}e${number.exponent}`)
  const sameAsDouble = Number.isFinite(nearest) ? exactOfDouble(nearest) : null
  if (sameAsDouble?.coefficient === number.coefficient && sameAsDouble.exponent === number.exponent) {
    spellings.push(typedDouble(nearest))
  }
  if (number.exponent >= 0 && number.exponent < 20) {
    const integer = number.coefficient * 10n ** BigInt(number.exponent)
    if (BigInt.asIntN(32, integer) === integer) spellings.push(typed(0x10, int32(Number(integer))))
    if (BigInt.asIntN(64, integer) === integer) spellings.push(typedLong(integer))
  }
  return spellings
}

function oneOf(value: string, spellings: readonly TypedValue[]): Shape {
  return { value, spell: (choose) => spellings[choose() % spellings.length] as TypedValue }
}

function number(of: Exact): Shape {
  return oneOf(`number ${of.coefficient}e${of.exponent}`, spellingsOf(of))
}

/** Returns the double truncated to a decimal of 34 digits. It is very close to the double, but a different number. */
function decimalBeside(value: number): Exact {
  const { coefficient, exponent } = exactOfDouble(value)
  const surplus = magnitude(coefficient).toString().length - decimalDigitsMax
  if (surplus <= 0) return exact(coefficient, exponent)
  return exact(coefficient / 10n ** BigInt(surplus), exponent + surplus)
}

const notableDoubles = [
  ...[0.1, 0.5, 1.5, -2.25, 3, 1e15, 1e22, 1e23, 1e300, -1e300, 5e-324, -5e-324, 2 ** -40, 2 ** -1000, 2 ** 63],
  ...[
    2 ** 53,
    2 ** 53 - 1,
    2 ** 53 + 2,
    -(2 ** 53),
    2 ** 64,
    Number.MAX_VALUE,
    -Number.MAX_VALUE,
    1 / 3,
    1e-7,
    123.456,
  ],
]

const notableIntegers = [
  ...[0n, 1n, -1n, 10n, 100n, 1n << 31n, (1n << 31n) - 1n, -(1n << 31n), -(1n << 31n) - 1n],
  ...[(1n << 53n) - 1n, 1n << 53n, (1n << 53n) + 1n, (1n << 53n) + 2n, -(1n << 53n) - 1n],
  ...[(1n << 63n) - 1n, 1n << 63n, -(1n << 63n), (1n << 63n) - 512n, (1n << 64n) + 1n, 10n ** 34n - 1n, 10n ** 34n],
]

const notableDecimals: Exact[] = [
  ...[exact(1n, -1), exact(1n, -7), exact(123456n, -3), exact(1n, -6176), exact(1n, 6144), exact(1n, 300)],
  ...[exact(10n ** 34n - 1n, 6111), exact(15n, -1), exact(10n ** 33n + 1n, -33), exact(3n * 10n ** 32n + 1n, -33)],
  ...notableDoubles.map(decimalBeside),
]

const anyDouble = fc.double({ noNaN: true, noDefaultInfinity: true })

const exactNumber: fc.Arbitrary<Exact> = fc.oneof(
  fc.constantFrom(...notableIntegers).map((integer) => exact(integer, 0)),
  fc.constantFrom(...notableDoubles).map(exactOfDouble),
  fc.constantFrom(...notableDecimals),
  fc.integer({ min: -20, max: 20 }).map((integer) => exact(BigInt(integer), 0)),
  fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }).map((integer) => exact(integer, 0)),
  anyDouble.map(exactOfDouble),
  anyDouble.map(decimalBeside),
  fc
    .tuple(fc.bigInt({ min: -(10n ** 34n - 1n), max: 10n ** 34n - 1n }), fc.integer({ min: -6176, max: 6111 }))
    .map(([coefficient, exponent]) => exact(coefficient, exponent)),
)

const notNumbers: Shape[] = [
  oneOf('NaN', [
    typedDouble(Number.NaN),
    typed(0x01, Buffer.from('0100efbeaddef87f', 'hex')),
    typed(0x01, Buffer.from('00000000000cf8ff', 'hex')),
    typedBits128(0x1fn << 122n),
    typedBits128((0x3fn << 122n) | 0x77n),
    typedBits128(0x7en << 120n),
  ]),
  oneOf('Infinity', [typedDouble(Infinity), typedBits128(0x1en << 122n), typedBits128((0x1en << 122n) | 5n)]),
  oneOf('-Infinity', [typedDouble(-Infinity), typedBits128(0x3en << 122n)]),
  // The second encoding of a decimal can hold only coefficients that are out of range. The standard defines these as zero.
  oneOf('number 0e0', [...zeros, typedBits128(0x6n << 124n), typedBits128((0x7n << 125n) | (3n << 111n) | 9n)]),
]

/** The first encoding can also hold coefficients of more than 34 digits, which count as zero too. */
const outOfRange = oneOf('number 0e0', [
  typedBits128((1n << 113n) - 1n),
  typedBits128(decimalBits(true, 10n ** 34n, 3)),
])

const text = fc.oneof(
  fc.constantFrom('', 'a', 'A', 'abc', 'é', 'e\u0301', '1', 'a\0b'),
  fc.string({ unit: 'binary', maxLength: 8 }),
)

const textual = text.map((written) => {
  const content = lengthPrefixed(Buffer.from(written))
  return oneOf(`text ${JSON.stringify(written)}`, [typed(0x02, content), typed(0x0e, content)])
})

const rest: Shape[] = [
  typed(0x08, Buffer.from([0])),
  typed(0x08, Buffer.from([1])),
  typed(0x0a),
  typed(0xff),
  typed(0x7f),
  typed(0x07, Buffer.alloc(12, 1)),
  typed(0x07, Buffer.alloc(12, 2)),
  typed(0x09, Buffer.alloc(8)),
  typed(0x09, Buffer.alloc(8, 1)),
  typed(0x11, Buffer.from([1, 0, 0, 0, 0, 0, 0, 0])),
  typed(0x11, Buffer.from([0, 0, 0, 0, 1, 0, 0, 0])),
  typed(0x05, int32(1), Buffer.from([0, 7])),
  typed(0x05, int32(1), Buffer.from([5, 7])),
  typed(0x05, int32(5), Buffer.from([2]), int32(1), Buffer.from([7])),
  typed(0x0d, lengthPrefixed(Buffer.from('a'))),
  typed(0x0c, lengthPrefixed(Buffer.from('a')), Buffer.alloc(12, 1)),
].map((value) => oneOf(`bytes ${value.toString('hex')}`, [value]))

/** Types that may occur inside an `_id`, but that an `_id` itself may not have. */
const withinOnly: Shape[] = [typed(0x06), typed(0x0b, cString(Buffer.from('a')), cString(Buffer.from('i')))].map(
  (value) => oneOf(`bytes ${value.toString('hex')}`, [value]),
)

const leaf: fc.Arbitrary<Shape> = fc.oneof(
  { weight: 6, arbitrary: exactNumber.map(number) },
  { weight: 2, arbitrary: fc.constantFrom(...notNumbers) },
  { weight: 2, arbitrary: textual },
  { weight: 2, arbitrary: fc.constantFrom(...rest) },
)

const name = fc.constantFrom('a', 'b', 'aa', '', '0', 'é')

function documentShape(fields: readonly (readonly [string, Shape])[]): Shape {
  return {
    value: `{${fields.map(([name, shape]) => `${JSON.stringify(name)}: ${shape.value}`).join(', ')}}`,
    spell: (choose) => typed(0x03, documentOf(fields.map(([name, shape]) => ({ name, value: shape.spell(choose) })))),
  }
}

function arrayShape(items: readonly Shape[]): Shape {
  return {
    value: `[${items.map((shape) => shape.value).join(', ')}]`,
    spell: (choose) =>
      typed(0x04, documentOf(items.map((shape, index) => ({ name: String(index), value: shape.spell(choose) })))),
  }
}

/** The server compares the elements of an array by their order. Some drivers let a program give them any field names. */
function misnumbered(item: Shape): Shape {
  return {
    value: `{"list": [${item.value}]}`,
    spell: (choose) => {
      const name = String(choose() % 3)
      return typed(
        0x03,
        documentOf([{ name: 'list', value: typed(0x04, documentOf([{ name, value: item.spell(choose) }])) }]),
      )
    },
  }
}

/** The server compares a scope like any document. */
function scopedCode(scope: Shape): Shape {
  return {
    value: `code with scope ${scope.value}`,
    spell: (choose) => {
      const code = lengthPrefixed(Buffer.from('x'))
      const document = documentOf([{ name: 'n', value: scope.spell(choose) }])
      return typed(0x0f, int32(4 + code.length + document.length), code, document)
    },
  }
}

/** A function that puts a value into an outer value, at some depth. */
type Frame = (inner: Shape) => Shape

const within: fc.Arbitrary<Frame> = fc.oneof(
  fc
    .tuple(fc.array(fc.tuple(name, leaf), { maxLength: 2 }), name, fc.array(fc.tuple(name, leaf), { maxLength: 2 }))
    .map(
      ([before, name, after]): Frame =>
        (inner) =>
          documentShape([...before, [name, inner], ...after]),
    ),
  fc.tuple(fc.array(leaf, { maxLength: 2 }), fc.array(leaf, { maxLength: 2 })).map(
    ([before, after]): Frame =>
      (inner) =>
        documentShape([['list', arrayShape([...before, inner, ...after])]]),
  ),
)

const frame: fc.Arbitrary<Frame> = fc.oneof(
  { weight: 3, arbitrary: fc.constant<Frame>((inner) => inner) },
  { weight: 2, arbitrary: within },
  {
    weight: 1,
    arbitrary: fc.tuple(within, within).map(
      ([outer, inner]): Frame =>
        (value) =>
          documentShape([['deep', outer(inner(value))]]),
    ),
  },
)

export interface Pair {
  one: TypedValue
  other: TypedValue
  /** Whether both are the same value according to the model. */
  equal: boolean
  /** Describes the pair in the message of a failed test. */
  text: string
}

function pairOf(one: Shape, other: Shape, choices: readonly number[]): Pair {
  let next = 0
  const choose = () => choices[next++ % choices.length] ?? 0
  const [first, second] = [one.spell(choose), other.spell(choose)]
  const text = `${one.value} as ${first.toString('hex')} | ${other.value} as ${second.toString('hex')}`
  return { one: first, other: second, equal: one.value === other.value, text }
}

const choices = fc.array(fc.nat({ max: 1_000 }), { minLength: 7, maxLength: 7 })

/** Two encodings of one value. */
export const equalPair: fc.Arbitrary<Pair> = fc
  .tuple(frame, leaf, choices)
  .map(([frame, value, choices]) => pairOf(frame(value), frame(value), choices))

/** Two values in the same place of an outer value. They often differ very little, and are sometimes equal. */
export const anyPair: fc.Arbitrary<Pair> = fc
  .tuple(frame, leaf, leaf, choices)
  .map(([frame, one, other, choices]) => pairOf(frame(one), frame(other), choices))

/** One value in two different places, so that the outer values have different structures. */
export const strangers: fc.Arbitrary<Pair> = fc
  .tuple(frame, frame, leaf, choices)
  .map(([one, other, value, choices]) => pairOf(one(value), other(value), choices))

/** Encodings that no driver writes by itself, by their names. */
export const rareSpellings: Record<string, fc.Arbitrary<Pair>> = {
  'an out-of-range decimal and zero': choices.map((choices) => pairOf(outOfRange, oneOf('number 0e0', zeros), choices)),
  'scopes of code': fc
    .tuple(leaf, leaf, fc.boolean(), choices)
    .map(([one, other, same, choices]) => pairOf(scopedCode(one), scopedCode(same ? one : other), choices)),
  'arrays with unusual field names': fc
    .tuple(leaf, leaf, fc.boolean(), choices)
    .map(([one, other, same, choices]) => pairOf(misnumbered(one), misnumbered(same ? one : other), choices)),
}

/** Pairs with values that occur only inside other values, in every kind of place. */
export const innerPair: fc.Arbitrary<Pair> = fc
  .tuple(within, fc.constantFrom(...withinOnly, ...rest), fc.constantFrom(...withinOnly, ...rest), choices)
  .map(([frame, one, other, choices]) => pairOf(frame(one), frame(other), choices))
