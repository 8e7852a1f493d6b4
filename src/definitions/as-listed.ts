import { numberOf, type RawFields, typedBoolean, typedDouble, typedInt32 } from '../domain/raw-bson.ts'

/**
 * Converts a value of an index specification to the type that listIndexes returns (src/mongo/db/list_indexes.idl). The
 * catalog keeps some values in the type that the client sent: an expiry set by collMod is an int64, and a flag may be a
 * number. An expiry that is not an int32 number keeps its type.
 */
export function asListed({ name, value }: RawFields[number]): RawFields[number] {
  const number = numberOf(value)
  if (number === undefined) return { name, value }
  if (flags.has(name)) return { name, value: typedBoolean(number !== 0) }
  if (name === 'min' || name === 'max') return { name, value: typedDouble(number) }
  const isInt32 = Number.isInteger(number) && Math.abs(number) < 2 ** 31
  return { name, value: name === 'expireAfterSeconds' && isInt32 ? typedInt32(number) : value }
}

const flags = new Set(['unique', 'sparse', 'hidden', 'prepareUnique', 'background'])
