import { bsonType, nameOf, spans } from '../domain/raw-bson.ts'

/**
 * Returns the path of the first element that differs between two documents in name, position, type or value. Descends
 * into embedded documents and arrays. Returns null if the bytes are equal, and an empty string if they differ but no
 * element does.
 */
export function firstDifferingPath(one: Buffer, other: Buffer): string | null {
  if (one.equals(other)) return null
  return walk(one, 0, other, 0) ?? ''
}

function walk(one: Buffer, oneAt: number, other: Buffer, otherAt: number): string | null {
  const left = [...spans(one, oneAt)]
  const right = [...spans(other, otherAt)]
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const a = left[index]
    const b = right[index]
    if (!a || !b) return a ? nameOf(one, a) : b ? nameOf(other, b) : null
    if (one.subarray(a.start, a.valueEnd).equals(other.subarray(b.start, b.valueEnd))) continue
    const name = nameOf(one, a)
    if (name !== nameOf(other, b)) return name
    const nested = a.type === b.type && (a.type === bsonType.document || a.type === bsonType.array)
    if (!nested) return name
    const inner = walk(one, a.valueStart, other, b.valueStart)
    return inner === null || inner === '' ? name : `${name}.${inner}`
  }
  return null
}
