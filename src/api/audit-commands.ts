import type { HttpBindings } from '@hono/node-server'
import type { Context, MiddlewareHandler } from 'hono'
import { type AuditedCommand, auditedCommands, type CommandCall } from '../domain/audit-entry.ts'
import { type RefusalName, RefusedError } from '../domain/errors.ts'

/**
 * Told of every command once it is answered. `admitted` is false when Host, Origin or token kept it out: a stranger who
 * is refused a thousand times must not push the sync's own trail out.
 */
export type OnCommand = (call: CommandCall, admitted: boolean) => void

/** Set by what answers with a refusal without throwing it. */
export interface RefusalVariables {
  refusedWith?: RefusalName
}

/** Tells who sent which command and what became of it. It stands before every guard, and never looks at a body. */
export function auditCommands(onCommand: OnCommand): MiddlewareHandler {
  return async (context, next) => {
    const command = commandOf(context.req.method, context.req.path)
    if (command === null) return await next()
    const time = new Date().toISOString()
    // Before the command: a client that has hung up by then has no address any more.
    const remoteAddress = remoteAddressOf(context)
    await next()
    const error = errorOf(context)
    const outcome = error === null ? 'accepted' : 'refused'
    onCommand({ time, command, remoteAddress, outcome, error }, ![401, 403].includes(context.res.status))
  }
}

function commandOf(method: string, path: string): AuditedCommand | null {
  if (method === 'PATCH') return path === '/api/v1/limits' ? 'limit' : null
  if (method !== 'POST') return null
  return auditedCommands.find((command) => command !== 'limit' && path === `/api/v1/${command}`) ?? null
}

function errorOf(context: Context<{ Variables: RefusalVariables }>): CommandCall['error'] {
  const { error, res } = context
  if (error instanceof RefusedError) return error.refusal
  if (res.ok) return null
  const refusedWith = context.get('refusedWith')
  if (refusedWith) return refusedWith
  // The guard of the host answers by itself.
  return res.status === 403 ? 'InvalidRequest' : 'InternalError'
}

function remoteAddressOf(context: Context): string | null {
  const { incoming } = (context.env ?? {}) as Partial<HttpBindings>
  return incoming?.socket.remoteAddress ?? null
}
