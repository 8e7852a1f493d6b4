import {
  Binary,
  BSONRegExp,
  BSONSymbol,
  Code,
  Decimal128,
  Int32,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
} from 'mongodb'
import {
  array,
  dateMillis,
  dbPointer,
  doubleBits,
  nested,
  nullValue,
  RawValue,
  rawDocument,
  stringValue,
  undefinedValue,
} from '../support/bson-values.ts'

/** A value, and another value that is easily mistaken for it: in the server's comparison, by a decoder, or at first sight. */
export type Near = readonly [what: string, value: unknown, other: unknown]

const oid = Buffer.from('0123456789abcdef01234567', 'hex')
const sixteen = Buffer.from('00112233445566778899aabbccddeeff', 'hex')
const binary = (subtype: number, bytes = sixteen) => new Binary(bytes, subtype)
const cString = (text: string) => Buffer.from(`${text}\0`)

/** Creates a decimal from the bits of both halves, because payloads of NaN and coefficients of more than 34 digits have no text form. */
function decimalBits(high: bigint, low: bigint): RawValue {
  const payload = Buffer.alloc(16)
  payload.writeBigUInt64LE(low, 0)
  payload.writeBigUInt64LE(high, 8)
  return new RawValue(19, payload)
}

/** Creates a regular expression with its flags in the given order. The driver would sort them. */
const regularExpression = (pattern: string, flags: string) =>
  new RawValue(11, Buffer.concat([cString(pattern), cString(flags)]))

/** Creates code with a scope. The scope may contain a name twice, which is impossible in a JavaScript object. */
function codeWithScope(code: string, scope: readonly (readonly [string, unknown])[]): RawValue {
  const length = Buffer.alloc(4)
  const body = Buffer.concat([stringValue(code).payload, rawDocument(scope)])
  length.writeInt32LE(body.length + 4)
  return new RawValue(15, Buffer.concat([length, body]))
}

/** Nests a value in `count` documents or arrays. */
export function levels(count: number, kind: 'documents' | 'arrays' | 'both', bottom: unknown): unknown {
  let value = bottom
  for (let at = 0; at < count; at++) {
    const asArray = kind === 'arrays' || (kind === 'both' && at % 2 === 0)
    value = asArray ? array([value]) : nested([['d', value]])
  }
  return value
}

/** Values of every BSON type, including deprecated ones. */
export const nearValues: readonly Near[] = [
  ['double 0.0 and -0.0', doubleBits(0n), doubleBits(1n << 63n)],
  ['double NaN and one with a payload', doubleBits(0x7ff8_0000_0000_0000n), doubleBits(0x7ff8_dead_beef_0001n)],
  ['double NaN and a negative one', doubleBits(0x7ff8_0000_0000_0000n), doubleBits(0xfff8_0000_0000_0000n)],
  ['double signalling NaN and a quiet one', doubleBits(0x7ff0_0000_0000_0001n), doubleBits(0x7ff8_0000_0000_0001n)],
  ['double infinities', doubleBits(0x7ff0_0000_0000_0000n), doubleBits(0xfff0_0000_0000_0000n)],
  ['double smallest and 0.0', doubleBits(1n), doubleBits(0n)],
  ['string composed and decomposed', 'é', 'e\u0301'],
  ['string NUL and shorter', stringValue('a\0b'), stringValue('a\0')],
  ['string beyond UTF-16, and empty', '😀𝄞', ''],
  ['string that is not UTF-8', stringValue(Buffer.from([0xff, 0xfe, 0x41])), stringValue('\ufffd\ufffdA')],
  ['document and array, both empty', nested([]), array([])],
  ['document with a name twice', twice(1, 2), twice(2, 1)],
  ['document with a name twice, and once', twice(1, 1), nested([['a', 1]])],
  ['document with numeric names in another order', named('10', '2'), named('2', '10')],
  ['document with dots and dollars in names', named('a.b', '$x'), named('a', '$x')],
  ['document with an empty name and __proto__', named('', '__proto__'), named('', 'proto')],
  ['array with an index other than 0', new RawValue(4, rawDocument([['7', 1]])), array([1])],
  ['array of null, and of undefined', array([nullValue]), array([undefinedValue])],
  ['binary of subtypes 0 and 128', binary(0), binary(128)],
  ['binary of subtype 2, and of 0', binary(2), binary(0)],
  ['binary UUID of old and of new', binary(3), binary(4)],
  ['binary MD5 and of subtype 1', binary(5), binary(1)],
  ['binary of subtypes 6 and 255', binary(6), binary(255)],
  ['binary of subtypes 8 and 9', binary(8), binary(9)],
  ['binary that is empty, and one byte', binary(0, Buffer.alloc(0)), binary(0, Buffer.alloc(1))],
  ['undefined and null', undefinedValue, nullValue],
  ['null and undefined', nullValue, undefinedValue],
  ['object id and its bytes', new ObjectId(oid), binary(0, oid)],
  ['boolean', true, false],
  ['date farthest in the past and a millisecond later', dateMillis(-(2n ** 63n)), dateMillis(1n - 2n ** 63n)],
  ['date farthest in the future, and a millisecond earlier', dateMillis(2n ** 63n - 1n), dateMillis(2n ** 63n - 2n)],
  ['date and a timestamp', dateMillis(0n), new Timestamp({ t: 0, i: 1 })],
  ['regular expression with options in another order', regularExpression('^a', 'xmi'), new BSONRegExp('^a', 'imx')],
  [
    'DBPointer and a document',
    dbPointer('db.c', oid),
    nested([
      ['$ref', 'db.c'],
      ['$id', new ObjectId(oid)],
    ]),
  ],
  ['DBPointer to another', dbPointer('db.c', oid), dbPointer('db.d', oid)],
  ['code and a string', new Code('return 1'), 'return 1'],
  ['symbol and a string', new BSONSymbol('s'), 's'],
  ['code with scope and without', codeWithScope('return a', []), new Code('return a')],
  [
    'code with a name twice in its scope',
    codeWithScope('return a', [
      ['a', 1],
      ['a', 2],
    ]),
    codeWithScope('return a', [
      ['a', 2],
      ['a', 1],
    ]),
  ],
  ['int32 and int64', new Int32(1), Long.fromInt(1)],
  ['int32 and double', new Int32(1), doubleBits(0x3ff0_0000_0000_0000n)],
  ['int32 lowest and highest', new Int32(-(2 ** 31)), new Int32(2 ** 31 - 1)],
  [
    'timestamp and the next',
    new Timestamp({ t: 2 ** 32 - 1, i: 2 ** 32 - 2 }),
    new Timestamp({ t: 2 ** 32 - 1, i: 2 ** 32 - 1 }),
  ],
  ['int64 beyond doubles and the double', Long.fromString('9007199254740993'), doubleBits(0x4340_0000_0000_0000n)],
  ['int64 lowest and highest', Long.MIN_VALUE, Long.MAX_VALUE],
  ['decimal with a zero at its end', Decimal128.fromString('1.10'), Decimal128.fromString('1.1')],
  ['decimal and int32', Decimal128.fromString('1'), new Int32(1)],
  ['decimal zeros', Decimal128.fromString('0'), Decimal128.fromString('-0E+10')],
  ['decimal NaN and one with a payload', decimalBits(0x7c00n << 48n, 0n), decimalBits(0x7c00n << 48n, 7n)],
  ['decimal signalling NaN and a negative one', decimalBits(0x7e00n << 48n, 0n), decimalBits(0xfe00n << 48n, 0n)],
  ['decimal that is not canonical, and zero', decimalBits(0x6c10n << 48n, 0n), decimalBits(0x3040n << 48n, 0n)],
  ['min key and max key', new MinKey(), new MaxKey()],
  ['max key and min key', new MaxKey(), new MinKey()],
  ['a hundred documents', levels(100, 'documents', 1), levels(100, 'documents', Long.fromInt(1))],
  ['a hundred arrays', levels(100, 'arrays', undefinedValue), levels(100, 'arrays', nullValue)],
  ['a hundred of both', levels(100, 'both', twice(1, 2)), levels(100, 'both', twice(2, 1))],
]

function twice(first: number, second: number): RawValue {
  return nested([
    ['a', first],
    ['a', second],
  ])
}

function named(first: string, second: string): RawValue {
  return nested([
    [first, 1],
    [second, 1],
  ])
}
