import * as v from 'valibot'
import { RefusedError } from '../domain/errors.ts'
import { emptyBodySchema } from './schemas.ts'
import { describeIssues } from './strict-schema.ts'

/** A start request with thousands of namespaces is many times smaller. A larger body is a mistake or an attack. */
export const bodyBytesMax = 1024 * 1024

/**
 * Reads the body as a JSON object with any Content-Type, because mongosync's documented `curl --data` sends the
 * Content-Type of a form.
 */
export async function readJsonObject(request: Request): Promise<Record<string, unknown>> {
  const text = await readText(request)
  if (text.trim() === '') return {}
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // The parser's own message quotes the body, which may contain secrets.
    throw new RefusedError('InvalidRequest', 'body: is not valid JSON; send a JSON object, for instance {}')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new RefusedError('InvalidRequest', 'body: must be a JSON object, for instance {}')
  }
  return value as Record<string, unknown>
}

/** Reads the body of a command without parameters and refuses any field in it. */
export async function readEmptyBody(request: Request): Promise<void> {
  const parsed = v.safeParse(emptyBodySchema, await readJsonObject(request))
  if (!parsed.success) throw new RefusedError('InvalidRequest', describeIssues(parsed.issues))
}

async function readText(request: Request): Promise<string> {
  if (Number(request.headers.get('content-length')) > bodyBytesMax) throw tooLarge()
  if (request.body === null) return ''
  const chunks: Uint8Array[] = []
  let bytes = 0
  const reader = request.body.getReader()
  for (;;) {
    const next = await reader.read().catch((cause: unknown) => {
      throw new RefusedError('InvalidRequest', 'body: could not be read to its end; send the request again', { cause })
    })
    if (next.done) break
    bytes += next.value.byteLength
    if (bytes > bodyBytesMax) {
      // Not awaited: a client that keeps sending must not delay the answer, and a failure here cannot change it.
      reader.cancel().catch(() => {})
      throw tooLarge()
    }
    chunks.push(next.value)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
  } catch {
    throw new RefusedError('InvalidRequest', 'body: is not valid UTF-8; send JSON encoded as UTF-8')
  }
}

function tooLarge(): RefusedError {
  return new RefusedError('RequestTooLarge', `body: is larger than ${bodyBytesMax} bytes; send a smaller one`)
}
