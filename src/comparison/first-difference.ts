import { bsonType, type ElementSpan, nameOf, spans } from '../domain/raw-bson.ts'

/**
 * Returns the path of the first field in which two documents differ, as `a.b.0`. If the names at one position differ,
 * the path ends with a name that only one of the documents has. If both documents have both names, it ends with the
 * name that `one` has at this position. The path is empty if the bytes are not valid BSON.
 */
export function firstDifference(one: Buffer, other: Buffer): string {
  try {
    return pathOf(one, 0, other, 0).join('.')
  } catch (error) {
    if (error instanceof RangeError) return '' // the bytes are not valid BSON
    throw error
  }
}

function pathOf(one: Buffer, oneStart: number, other: Buffer, otherStart: number): string[] {
  const ours = [...spans(one, oneStart)]
  const theirs = [...spans(other, otherStart)]
  for (let at = 0; at < Math.max(ours.length, theirs.length); at++) {
    const [a, b] = [ours[at], theirs[at]]
    if (a === undefined) return b ? [nameOf(other, b)] : []
    if (b === undefined) return [nameOf(one, a)]
    const [aName, bName] = [nameOf(one, a), nameOf(other, b)]
    if (!sameBytes(one, a.nameStart, a.nameEnd, other, b.nameStart, b.nameEnd)) {
      const isIn = (name: string, bytes: Buffer, list: ElementSpan[]): boolean =>
        list.slice(at).some((span) => nameOf(bytes, span) === name)
      return [isIn(aName, other, theirs) && !isIn(bName, one, ours) ? bName : aName]
    }
    if (a.type === b.type && sameBytes(one, a.valueStart, a.valueEnd, other, b.valueStart, b.valueEnd)) continue
    const bothNested = a.type === b.type && (a.type === bsonType.document || a.type === bsonType.array)
    return [aName, ...(bothNested ? pathOf(one, a.valueStart, other, b.valueStart) : [])]
  }
  return []
}

function sameBytes(
  one: Buffer,
  oneStart: number,
  oneEnd: number,
  other: Buffer,
  otherStart: number,
  otherEnd: number,
): boolean {
  return one.subarray(oneStart, oneEnd).equals(other.subarray(otherStart, otherEnd))
}
