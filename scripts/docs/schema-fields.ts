/** The part of JSON Schema that the API's OpenAPI document uses. */
export interface Schema {
  type?: string
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  items?: Schema
  anyOf?: Schema[]
  enum?: unknown[]
  const?: unknown
  default?: unknown
  minimum?: number
  maximum?: number
  minLength?: number
  minItems?: number
  minProperties?: number
  maxProperties?: number
  description?: string
}

export interface Field {
  /** Path of the field, for instance `sharding.shardingEntries[].database`. */
  path: string
  type: string
  /** True if a request must contain the field, or if an answer always contains it. */
  required: boolean
  default: string
  constraints: string
  meaning: string
  /** The field's own schema, for pages that show its fields elsewhere. */
  schema: Schema
}

/**
 * Returns the fields of an object, each followed by its nested fields. Those of a field for which `within` returns false are
 * left out.
 */
export function fieldsOf(schema: Schema, within: (field: Field) => boolean = () => true, prefix = ''): Field[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, own]) => {
    const path = prefix + name
    const required = schema.required?.includes(name) ?? false
    const field = {
      path,
      type: typeOf(own),
      required: required && own.default === undefined,
      default: own.default === undefined ? '' : JSON.stringify(own.default),
      constraints: constraintsOf(own).join('; '),
      meaning: meaningOf(own),
      schema: own,
    }
    const [inner, suffix] = innerOf(own)
    return [field, ...(inner && within(field) ? fieldsOf(inner, within, `${path}${suffix}.`) : [])]
  })
}

/** Returns the schema that contains a field's nested fields, and the suffix of its path: `[]` for each array around it. */
export function innerOf(schema: Schema): [inner: Schema | null, suffix: string] {
  const container = [schema, ...(schema.anyOf ?? [])].find(({ properties, items }) => properties ?? items)
  if (container?.items) {
    const [inner, suffix] = innerOf(container.items)
    return [inner, `[]${suffix}`]
  }
  return [container ?? null, '']
}

function typeOf(schema: Schema): string {
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(' or ')
  if (schema.type === 'array') return `array of ${plural(typeOf(schema.items ?? {}))}`
  if (schema.const !== undefined) return typeof schema.const
  return schema.type ?? 'any'
}

function plural(type: string): string {
  return type
    .split(' or ')
    .map((one) => (one === 'any' ? 'any values' : `${one}s`))
    .join(' or ')
}

function constraintsOf(schema: Schema): string[] {
  const { minimum, maximum, minLength, minItems, minProperties, maxProperties } = schema
  const constraints: string[] = []
  if (schema.enum) constraints.push(schema.enum.map((value) => `\`${String(value)}\``).join(', '))
  if (schema.const !== undefined) constraints.push(`\`${String(schema.const)}\``)
  if (minimum !== undefined) constraints.push(`at least ${minimum.toLocaleString('en')}`)
  if (maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER)
    constraints.push(`at most ${maximum.toLocaleString('en')}`)
  if (minLength === 1) constraints.push('not empty')
  if (minItems === 1) constraints.push('at least one element')
  if (minProperties === 1 && maxProperties === 1) constraints.push('exactly one field')
  return [...constraints, ...(schema.anyOf ?? []).flatMap(constraintsOf)]
}

function meaningOf(schema: Schema): string {
  const own = schema.description ?? schema.anyOf?.find(({ description }) => description)?.description ?? ''
  const inner = schema.items && !schema.items.properties ? schema.items.description : undefined
  return [own, inner].filter(Boolean).join(' ')
}
