import * as v from 'valibot'
import { detailEntries } from '../../src/api/schemas.ts'
import { refusalStatus } from '../../src/domain/errors.ts'
import { apiUnderTest } from '../../test/api/recording-instance.ts'
import { exampleOf } from './api-examples.ts'
import { type Field, fieldsOf, innerOf, type Schema } from './schema-fields.ts'

/** Path of the generated page, which is built from the document that the app returns at `/openapi.json`. */
export const apiPath = 'docs/api.md'

interface Content {
  description: string
  content?: Record<string, { schema?: Schema }>
}

interface Operation {
  operationId: string
  summary: string
  parameters?: { name: string; description: string; schema: Schema }[]
  requestBody?: Content & { required?: boolean }
  responses: Record<string, Content>
}

interface Endpoint extends Operation {
  /** Method and path, for instance `GET /api/v1/progress`. */
  title: string
  method: string
  path: string
}

export async function apiPage(): Promise<string> {
  const { body } = await apiUnderTest().get('/openapi.json')
  const endpoints = Object.entries(body.paths as Record<string, Record<string, Operation>>).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]): Endpoint => {
      const title = `${method.toUpperCase()} ${path}`
      return { ...operation, title, method, path }
    }),
  )
  const known: Known = new Map()
  const sections = endpoints.map((endpoint) => renderEndpoint(endpoint, known))
  return `${introduction(endpoints)}\n${sections.join('\n')}\n${errorNames()}`
}

function introduction(endpoints: Endpoint[]): string {
  return `# API reference

Generated from the app's OpenAPI document by \`npm run docs:api\`. Do not edit this page: a test fails if it differs from the app.
A running instance returns the same document as JSON at \`GET /openapi.json\`. \`GET /metrics\` is text for Prometheus, see
[metrics.md](metrics.md). What the commands do is described in [control.md](control.md).

Every answer has \`success\`. A failure also has \`error\` and \`errorDescription\`, see [Failures](#failures). Fields that are not
listed here are refused in a request and are never in an answer. A path such as \`mismatches[].id\` names the field \`id\` of each element.

${table(
  ['Endpoint', 'Command line', 'What it does'],
  endpoints.map(({ title, operationId, summary }) => [
    `[${title}](#${anchor(title)})`,
    exampleOf(operationId).cli,
    summary,
  ]),
)}
`
}

function renderEndpoint(endpoint: Endpoint, known: Known): string {
  const { title, method, path, operationId, summary, parameters, requestBody, responses } = endpoint
  const body = jsonOf(requestBody)
  const parts = [`## ${title}`, summary]
  if (parameters) {
    const properties = Object.fromEntries(
      parameters.map(({ name, description, schema }) => [name, { ...schema, description }]),
    )
    parts.push('**Query.**', fieldsTable({ properties }, known, `the query of [${title}](#${anchor(title)})`, true))
  }
  if (body) {
    const bodyDescription = requestBody?.description ?? ''
    parts.push(
      `**Request body.** ${bodyDescription}`,
      fieldsTable(body, known, `the body of [${title}](#${anchor(title)})`, true),
    )
  }
  const answer = jsonOf(responses['200'])
  if (answer) parts.push('**Answer.**', fieldsTable(answer, known, `[${title}](#${anchor(title)})`, false))
  const failures = Object.entries(responses).filter(([status]) => status !== '200')
  parts.push(
    `**Failures.** ${failures.map(([status, { description }]) => `${status}: ${description.replace(/\.$/, '')}`).join('. ')}.`,
    `\`\`\`sh\n${curl(method, path, exampleOf(operationId).body ?? (requestBody?.required ? required(body) : undefined), body !== null)}\n\`\`\``,
  )
  return `${parts.join('\n\n')}\n`
}

/** Where the page already shows an object with these properties, by the properties as JSON. */
type Known = Map<string, string>

function fieldsTable(schema: Schema, known: Known, here: string, isRequest: boolean): string {
  const whole = placeOf(schema, known, here)
  if (whole) return `The same as ${whole}.`
  const places = new Map<string, string>()
  const fields = fieldsOf(schema, (field) => {
    const [inner] = innerOf(field.schema)
    const place = inner && placeOf(inner, known, `\`${field.path}\` of ${here}`)
    if (place) places.set(field.path, place)
    return place === null
  })
  if (fields.length === 0) return 'No fields.'
  const meaning = ({ path, meaning }: Field): string =>
    places.has(path) ? `${meaning} Fields as in ${places.get(path)}.`.trim() : meaning
  return table(
    ['Field', 'Type', ...(isRequest ? ['Required', 'Default'] : ['Always there']), 'Values', 'Meaning'],
    fields.map((field) => [
      `\`${field.path}\``,
      field.type,
      field.required ? 'yes' : 'no',
      ...(isRequest ? [field.default === '' ? '' : `\`${field.default}\``] : []),
      field.constraints,
      meaning(field),
    ]),
  )
}

/**
 * Returns where the page already shows an object of this schema. Returns null if it must be shown `here`: it is the first
 * one with these properties, or it has fewer than three and is repeated.
 */
function placeOf(schema: Schema, known: Known, here: string): string | null {
  if (Object.keys(schema.properties ?? {}).length < 3) return null
  const key = JSON.stringify(schema.properties)
  const place = known.get(key) ?? null
  if (!place) known.set(key, here)
  return place
}

function errorNames(): string {
  const names = Object.entries(refusalStatus).map(([name, status]) => [
    `[${name}](troubleshooting.md#${anchor(name)})`,
    String(status),
  ])
  return `## Failures

${table(
  ['Field', 'Type', 'Meaning'],
  [
    ['`success`', 'boolean', '`false`'],
    ['`error`', 'string', 'Name of the error, one of those below.'],
    ['`errorDescription`', 'string', 'What was refused, which field is wrong, and the remedy.'],
    ...Object.entries(detailEntries).map(([name, { wrapped }]) => [
      `\`${name}\``,
      'string, may be absent',
      v.getDescription(wrapped) ?? '',
    ]),
  ],
)}

A command that is refused with a status below 500 has changed nothing, except that another instance may have accepted it (\`/all/…\`). After
\`NoAnswer\`, \`ClusterUnreachable\` or \`InternalError\` the command may have taken effect: read \`progress\`. \`InvalidRequest\` has status 403 for a foreign Host or Origin, 404 for a path and 405 for
a method that does not exist, and 408 or 431 for a request that does not arrive in time or whose header is too large.

${table(['Error', 'Status'], names)}
`
}

function curl(method: string, path: string, body: unknown, takesBody: boolean): string {
  const verb = method === 'get' ? '' : ` -X ${method.toUpperCase()}`
  const data = takesBody ? ` \\\n  --data '${JSON.stringify(body ?? {})}'` : ''
  return `curl${verb} http://localhost:27182${path}${data}`
}

/** Returns an example body for an endpoint that has none: the required fields with values of their types. */
function required(schema: Schema | null): unknown {
  const filled = (one: Schema): unknown => {
    if (one.enum) return one.enum[0]
    if (one.type === 'object') return required(one)
    return { string: 'x', boolean: true, array: [] }[one.type ?? ''] ?? one.minimum ?? 1
  }
  const names = schema?.required ?? []
  return Object.fromEntries(names.map((name) => [name, filled(schema?.properties?.[name] ?? {})]))
}

function jsonOf(content: Content | undefined): Schema | null {
  return content?.content?.['application/json']?.schema ?? null
}

function table(heads: string[], rows: string[][]): string {
  const line = (cells: string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('<', '&lt;')).join(' | ')} |`
  return [line(heads), line(heads.map(() => '---')), ...rows.map(line)].join('\n')
}

/** The anchor that GitHub derives from a heading. */
function anchor(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}
