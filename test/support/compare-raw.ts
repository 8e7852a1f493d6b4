import { BSON } from 'mongodb'

/** One element of a raw BSON document: its name, and its type byte followed by its value's bytes. */
export interface RawElement {
  readonly name: string
  readonly value: Buffer
}

const sizeAt: Record<number, (bytes: Buffer, at: number) => number> = {
  1: () => 8,
  2: (bytes, at) => 4 + bytes.readInt32LE(at),
  3: (bytes, at) => bytes.readInt32LE(at),
  4: (bytes, at) => bytes.readInt32LE(at),
  5: (bytes, at) => 5 + bytes.readInt32LE(at),
  6: () => 0,
  7: () => 12,
  8: () => 1,
  9: () => 8,
  10: () => 0,
  11: (bytes, at) => bytes.indexOf(0, bytes.indexOf(0, at) + 1) + 1 - at,
  12: (bytes, at) => 16 + bytes.readInt32LE(at),
  13: (bytes, at) => 4 + bytes.readInt32LE(at),
  14: (bytes, at) => 4 + bytes.readInt32LE(at),
  15: (bytes, at) => bytes.readInt32LE(at),
  16: () => 4,
  17: () => 8,
  18: () => 8,
  19: () => 16,
  127: () => 0,
  255: () => 0,
}

/**
 * Iterates over the top-level elements of a document. The oracle has its own BSON parser, because a decoder shared with
 * the product could hide the product's bugs.
 */
export function* elements(document: Buffer): Generator<RawElement> {
  let at = 4
  while (at < document.length - 1) {
    const type = document[at] as number
    const nameEnd = document.indexOf(0, at + 1)
    const size = sizeAt[type]
    if (size === undefined) throw new Error(`unknown BSON type ${type}`)
    const end = nameEnd + 1 + size(document, nameEnd + 1)
    const value = Buffer.concat([document.subarray(at, at + 1), document.subarray(nameEnd + 1, end)])
    yield { name: document.toString('utf8', at + 1, nameEnd), value }
    at = end
  }
}

export function elementMap(document: Buffer): Map<string, Buffer> {
  return new Map([...elements(document)].map(({ name, value }) => [name, value]))
}

/**
 * Returns the bytes that identify an `_id`, including its type. The server stores `_id` first, but this function does
 * not rely on it.
 */
export function idBytes(document: Buffer): Buffer {
  for (const { name, value } of elements(document)) if (name === '_id') return value
  return Buffer.alloc(0)
}

/** Returns the bytes of a nested document, or undefined if the value has another type. */
export function nestedDocument(value: Buffer | undefined): Buffer | undefined {
  return value?.[0] === 3 ? value.subarray(1) : undefined
}

export function stringOf(value: Buffer | undefined): string {
  return value?.[0] === 2 ? value.toString('utf8', 5, value.length - 1) : ''
}

/** Formats a value for people. Canonical EJSON names the BSON type, which is often the only difference. */
export function show(value: Buffer | undefined): string {
  if (value === undefined) return 'unset'
  const body = Buffer.concat([value.subarray(0, 1), Buffer.from('v\0'), value.subarray(1), Buffer.from([0])])
  const length = Buffer.alloc(4)
  length.writeInt32LE(body.length + 4)
  try {
    const decoded = BSON.deserialize(Buffer.concat([length, body]), { promoteValues: false, bsonRegExp: true })
    const text = BSON.EJSON.stringify(decoded['v'], { relaxed: false })
    return text.length > 300 ? `${text.slice(0, 300)}…` : text
  } catch {
    return `0x${value.toString('hex', 0, 100)}`
  }
}
