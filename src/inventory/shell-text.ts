import { BSON } from 'mongodb'

const { EJSON } = BSON

/** Values as text of a mongosh script. */

/**
 * JSON is JavaScript, except that a value of another type is an object with a name like `$date`. Such a value is parsed
 * by the `EJSON` of mongosh.
 */
export function shellValue(value: unknown): string {
  const relaxed = EJSON.stringify(value, { relaxed: true })
  if (!/"\$[a-zA-Z]+":/.test(relaxed)) return escaped(relaxed)
  return `EJSON.parse(${shellText(EJSON.stringify(value, { relaxed: false }))})`
}

export function shellText(text: string): string {
  return escaped(JSON.stringify(text))
}

export function shellDatabase(name: string): string {
  return `db.getSiblingDB(${shellText(name)})`
}

/** JSON leaves characters as they are that would end a line, reach the terminal or change the direction of text. */
function escaped(json: string): string {
  return json.replace(
    /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Equal for values that mean the same: the order of fields does not count. */
export function canonical(value: unknown): string {
  return JSON.stringify(sortedFields(JSON.parse(EJSON.stringify(value, { relaxed: true }))))
}

function sortedFields(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortedFields)
  if (value === null || typeof value !== 'object') return value
  const fields = Object.entries(value as object)
  return Object.fromEntries(
    fields.sort(([one], [other]) => (one < other ? -1 : 1)).map(([k, v]) => [k, sortedFields(v)]),
  )
}
