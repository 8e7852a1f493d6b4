import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import { describeIssues, objectOf } from './strict-schema.ts'

/** Query parameters whose values are whole numbers. Unknown parameters are refused. */

export interface NumberParameter {
  least: number
  most: number
  /** The default. */
  usual: number
  meaning: string
}

/** Parses the parameters of one endpoint, and describes them for the OpenAPI document. */
export function numberParameters<Name extends string>(parameters: Readonly<Record<Name, NumberParameter>>) {
  const names = Object.keys(parameters) as Name[]
  const schema = objectOf(Object.fromEntries(names.map((name) => [name, schemaOf(parameters[name])])))
  return {
    described: names.map((name) => {
      const { least, most, usual, meaning } = parameters[name]
      const numbers = { type: 'integer' as const, minimum: least, maximum: most, default: usual }
      return { name, in: 'query' as const, required: false, description: meaning, schema: numbers }
    }),
    /** Throws RefusedError InvalidRequest, naming the parameter. */
    parse: (query: Record<string, string>): Record<Name, number> => {
      const parsed = v.safeParse(schema, query)
      if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
      return parsed.output as Record<Name, number>
    },
  }
}

const schemaOf = ({ least, most, usual }: NumberParameter) =>
  v.optional(
    v.pipe(
      v.string(),
      v.regex(/^\d{1,9}$/, 'must be a whole number of at most 9 digits'),
      v.transform(Number),
      v.minValue(least, `must be at least ${least}`),
      v.maxValue(most, `must be at most ${most}`),
    ),
    String(usual),
  )
