import * as v from 'valibot'

/**
 * valibot's strictObject and record for API input. Both refuse arrays, and the messages of strictObject name the
 * allowed fields. Messages may contain field names of the request, but never its values.
 */

type ObjectIssue = v.StrictObjectIssue | v.RecordIssue

/** valibot accepts an array as an object. Running the schema on null instead gives its "must be an object" issue. */
function refuseArrays<Schema extends v.GenericSchema>(schema: Schema): Schema {
  const run = schema['~run'].bind(schema)
  return Object.assign(schema, {
    '~run': (dataset: Parameters<typeof run>[0], config: Parameters<typeof run>[1]) =>
      run(Array.isArray(dataset.value) ? { value: null } : dataset, config),
  })
}

/** Returns the schema of an object that has only these fields. */
export function objectOf<const Entries extends v.ObjectEntries>(entries: Entries) {
  const message = (issue: ObjectIssue): string => {
    if (issue.expected === 'Object') return 'must be an object'
    const field = String(issue.path?.at(-1)?.key)
    const entry = Object.hasOwn(entries, field) ? entries[field] : undefined
    if (entry !== undefined) return `is required and must be ${inWords(entry.expects)}`
    const allowed = Object.keys(entries)
    return `unknown field; ${allowed.length === 0 ? 'no field is allowed here' : `the allowed fields are ${allowed.join(', ')}`}`
  }
  return refuseArrays(v.strictObject(entries, message))
}

/** Names that valibot's record drops silently, to prevent prototype pollution. */
const droppedNames = ['__proto__', 'prototype', 'constructor']

/** Returns the schema of an object that has exactly one field, of any name. */
export function singleFieldOf<const Value extends v.GenericSchema>(value: Value) {
  const one = 'must have exactly one field; use one element for each field, in order'
  const schema = v.record(v.pipe(v.string(), v.minLength(1, 'a field name must not be empty')), value)
  const run = schema['~run'].bind(schema)
  const guarded = Object.assign(schema, {
    '~run': (dataset: Parameters<typeof run>[0], config: Parameters<typeof run>[1]) => {
      const input = dataset.value
      // An object with such a name is replaced by an empty one, which the check of the number of fields refuses.
      const plain = typeof input === 'object' && input !== null && !Array.isArray(input)
      const dropped = plain && droppedNames.some((name) => Object.hasOwn(input, name))
      return run(dropped ? { value: {} } : plain ? dataset : { value: null }, config)
    },
  })
  return v.pipe(guarded, v.minEntries(1, one), v.maxEntries(1, one))
}

/** Returns one clause for each of the first issues, joined by semicolons. A clause begins with the dotted path of the field. */
export function describeIssues(found: readonly v.BaseIssue<unknown>[]): string {
  const issuesShownMax = 20
  const issues = found.flatMap(withinUnion)
  const shown = issues.slice(0, issuesShownMax).map((issue) => {
    const ownMessage = issue.kind === 'validation' || (issue.type === 'strict_object' && issue.expected !== 'Object')
    return `${dottedPath(issue.path)}: ${ownMessage ? issue.message : `must be ${inWords(issue.expected ?? '')}`}`
  })
  if (issues.length > issuesShownMax) shown.push(`and ${issues.length - issuesShownMax} more`)
  return shown.join('; ')
}

/**
 * The issue of a union says only that no option matches. If the value has the type of one option, the issues of the
 * value's parts are more precise, and they replace the union's issue.
 */
function withinUnion(issue: v.BaseIssue<unknown>): v.BaseIssue<unknown>[] {
  const inner = issue.type === 'union' ? (issue.issues ?? []).filter(({ path }) => path !== undefined) : []
  if (inner.length === 0) return [issue]
  return inner.map((one) => ({ ...one, path: [...(issue.path ?? []), ...(one.path ?? [])] }) as v.BaseIssue<unknown>)
}

function dottedPath(path: v.BaseIssue<unknown>['path']): string {
  const nameLengthMax = 64
  let text = ''
  for (const { key } of path ?? []) {
    if (typeof key === 'number') text += `[${key}]`
    else text += `${text === '' ? '' : '.'}${String(key).slice(0, nameLengthMax)}`
  }
  return text === '' ? 'body' : text
}

const typeWords: Record<string, string> = {
  Object: 'an object',
  Array: 'an array',
  string: 'a string',
  number: 'a number',
  boolean: 'true or false',
}

/** Rewrites valibot's `("a" | "b" | boolean)` as "'a' or 'b' or true or false". */
function inWords(expected: string): string {
  return expected
    .replaceAll(/[()]/g, '')
    .split(' | ')
    .map((word) => typeWords[word] ?? word.replaceAll('"', "'"))
    .join(' or ')
}
