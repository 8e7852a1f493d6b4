import { request as requestHttp } from 'node:http'
import { createConnection } from 'node:net'
import fc from 'fast-check'

/** Arbitrary requests to a served API, and the conditions that every answer must meet. */

const paths = [
  ...[
    'start',
    'check',
    'progress',
    'pause',
    'resume',
    'commit',
    'reverse',
    'instances',
    'limits',
    'repair',
    'resync',
    'filter',
    'audit',
  ].map((name) => `/api/v1/${name}`),
  ...['/api/v1/verification/mismatches', '/healthz', '/openapi.json', '/metrics', '/', '*', '/api', '//', '/%', '/%00'],
]
const printableText = fc.stringMatching(/^[ -~]{0,60}$/)
const path = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...paths) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(...paths), fc.webQueryParameters()).map((parts) => parts.join('?')),
  },
  { weight: 1, arbitrary: fc.stringMatching(/^\/[!-~]{0,60}$/) },
)
const method = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('GET', 'POST', 'PATCH') },
  { weight: 1, arbitrary: fc.constantFrom('HEAD', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'PURGE', 'M-SEARCH') },
)
const headerName = fc.oneof(
  fc.constantFrom(
    'Content-Type',
    'Origin',
    'Authorization',
    'Accept',
    'Accept-Encoding',
    'X-Forwarded-For',
    'Cookie',
    'Range',
  ),
  fc.stringMatching(/^X-[A-Za-z0-9-]{1,20}$/),
)
const headers = fc.dictionary(headerName, printableText, { maxKeys: 4 })
const start = fc.record(
  {
    source: fc.constantFrom<unknown>('cluster0', 'cluster1', 1),
    destination: fc.constantFrom<unknown>('cluster0', 'cluster1', null),
    verification: fc.jsonValue(),
    includeNamespaces: fc.array(
      fc.dictionary(fc.constantFrom('database', 'collections', 'databaseRegex'), fc.jsonValue()),
    ),
    sharding: fc.jsonValue(),
    bytesPerSecond: fc.jsonValue(),
  },
  { requiredKeys: [] },
)
const body = fc.oneof(
  fc.constant(''),
  fc.json(),
  start.map((value) => JSON.stringify(value)),
  fc.uint8Array({ maxLength: 300 }),
  printableText,
)
const wellFormed = fc.record({ kind: fc.constant('http' as const), method, path, headers, body })
/** Bytes that resemble HTTP but are malformed. */
const malformed = fc.record({
  kind: fc.constant('raw' as const),
  text: fc.oneof(
    fc
      .tuple(method, printableText, fc.constantFrom('\r\n\r\n', '\r\nHost: x\r\n\r\n', '\n\n', ''))
      .map((parts) => parts.join(' ')),
    fc
      .tuple(fc.constantFrom('GET / HTTP/1.1\r\n', 'POST /api/v1/start HTTP/1.1\r\nHost: localhost\r\n'), printableText)
      .map(([begin, rest]) => `${begin}${rest}\r\n\r\n`),
    fc.string({ maxLength: 100, unit: 'binary' }),
  ),
})

/** One request in fifty is malformed, because each malformed request costs a connection. */
export const fuzzedRequest = fc.oneof({ weight: 49, arbitrary: wellFormed }, { weight: 1, arbitrary: malformed })
export type FuzzedRequest = typeof fuzzedRequest extends fc.Arbitrary<infer Value> ? Value : never

/** Sends a request and returns null for a valid answer, otherwise a description of the problem. */
export async function sendFuzzed(port: number, fuzzed: FuzzedRequest): Promise<string | null> {
  if (fuzzed.kind === 'raw') return await sendRaw(port, fuzzed.text)
  const { method: verb, path: requestPath, headers: others, body: sent } = fuzzed
  const bytes = ['GET', 'HEAD'].includes(verb) ? undefined : Buffer.from(sent)
  const answer = await new Promise<{ status: number; text: string; type: string }>((resolve, reject) => {
    // Node sends no length for the body of DELETE, OPTIONS and TRACE. Without a length the server would parse the body
    // as the next request.
    const length = bytes === undefined ? {} : { 'Content-Length': bytes.length }
    const headers = { Host: 'localhost', ...length, ...others }
    const options = { host: '127.0.0.1', port, method: verb, path: requestPath, headers }
    const request = requestHttp(options, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const type = response.headers['content-type'] ?? ''
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString(), type })
      })
    })
    request.on('error', reject)
    request.end(bytes)
  }).catch((error: Error) => ({ status: 0, text: error.message, type: '' }))
  return problemOf(answer.status, answer.text, verb === 'HEAD' || !answer.type.startsWith('application/json'))
}

function problemOf(status: number, text: string, isOpaque: boolean): string | null {
  if (status < 200 || status >= 500) return `status ${status}: ${text}`
  if (isOpaque) return null
  try {
    const answer = JSON.parse(text) as { success?: unknown; error?: unknown; openapi?: unknown }
    const isShaped = status < 400 ? answer.success === true || 'openapi' in answer : typeof answer.error === 'string'
    return isShaped ? null : `status ${status} has an unknown shape: ${text.slice(0, 200)}`
  } catch {
    return `status ${status}, not JSON: ${text.slice(0, 200)}`
  }
}

/** Sends bytes over a connection. Any answer except 5xx is valid, and so is no answer. The connection must end. */
function sendRaw(port: number, text: string): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: '127.0.0.1' })
    let received = ''
    socket.setEncoding('latin1').on('data', (data: string) => {
      received += data
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(/^HTTP\/1\.1 5/.test(received) ? received.slice(0, 200) : null))
    socket.end(text, 'latin1')
  })
}
