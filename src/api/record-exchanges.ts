import type { MiddlewareHandler } from 'hono'
import { commandOf } from './audit-commands.ts'

/** Logs each command as the API received it, and the answer to each command. */
export interface ExchangeRecorder {
  received(request: { method: string; uri: string; body?: string }): void
  answered(response: { method: string; uri: string; status: number; body: string }): void
}

/** Longer bodies are not logged, so that a log line stays readable. */
const bodyBytesMax = 16 * 1024

/** Returns the body as JSON text for a log line. A body that is too long becomes `{}`, because a cut one is not JSON. */
export function bodyForLog(text: string): string {
  return text.length > bodyBytesMax ? '{}' : text
}

/**
 * Records the commands that the guards let pass, and their answers. Queries are not recorded: clients send them every
 * second. The handler of `start` records that command itself, with the body, once the body is valid: unknown fields of an
 * invalid body may contain secrets.
 */
export function recordExchanges(recorder: ExchangeRecorder): MiddlewareHandler {
  return async (context, next) => {
    const { method, path: uri } = context.req
    const command = commandOf(method, uri)
    if (command === null) return await next()
    if (command !== 'start') recorder.received({ method, uri })
    await next()
    const { status } = context.res
    recorder.answered({ method, uri, status, body: bodyForLog(await context.res.clone().text()) })
  }
}
