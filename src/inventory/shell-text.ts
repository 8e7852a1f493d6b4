import { BSON } from 'mongodb'

const { EJSON } = BSON

/** Values as text of a mongosh script. */

/**
 * Returns a JavaScript expression for the value: JSON, if JSON can express it. A value with other BSON types (`$date`,
 * for instance) becomes extended JSON, which `EJSON.parse` of mongosh parses.
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

/** Escapes characters that JSON does not escape and that end a line, control a terminal or change text direction. */
function escaped(json: string): string {
  return json.replace(
    /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Returns the same text for values that differ only in the order of fields or in the types int, long and double. */
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
