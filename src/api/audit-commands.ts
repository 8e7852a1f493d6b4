import { randomUUID } from 'node:crypto'
import type { HttpBindings } from '@hono/node-server'
import type { Context, MiddlewareHandler } from 'hono'
import {
  type AuditedCommand,
  auditedCommands,
  type CommandCall,
  type ReceivedCommand,
  type TokenUse,
} from '../domain/audit-entry.ts'
import { type RefusalName, RefusedError } from '../domain/errors.ts'

/** Records commands and their outcomes in the audit trail. */
export interface CommandRecorder {
  /** Resolves when the command may run. Never rejects. */
  received(call: ReceivedCommand): Promise<void>
  /**
   * `admitted` is false if the guards refused the command because of a header such as Host or Origin, or because of its
   * token. `received` is not called for such a command, and the command must not enter the sync's stored audit trail: a
   * thousand of them would replace all other entries.
   */
  answered(call: CommandCall, admitted: boolean): void
}

export interface RefusalVariables {
  /** Set by handlers that answer with a refusal without throwing it. */
  refusedWith?: RefusalName
  /** Set for requests that are not recorded, because large numbers of them would fill the log. */
  unaudited?: boolean
}

interface AuditVariables extends RefusalVariables {
  received?: ReceivedCommand
  admitted?: boolean
}

/** Records the outcome of each command. This middleware runs before every guard and never reads a body. */
export function auditCommands(recorder: CommandRecorder, tokenOf: (context: Context) => TokenUse): MiddlewareHandler {
  return async (context: Context<{ Variables: AuditVariables }>, next) => {
    const command = commandOf(context.req.method, context.req.path)
    if (command === null) return await next()
    const received: ReceivedCommand = {
      id: randomUUID(),
      time: new Date().toISOString(),
      command,
      // Read before the command runs: a client that disconnects meanwhile no longer has an address.
      remoteAddress: remoteAddressOf(context),
      token: tokenOf(context),
    }
    context.set('received', received)
    await next()
    if (context.get('unaudited')) return
    const error = errorOf(context)
    const outcome = error === null ? 'accepted' : 'refused'
    recorder.answered({ ...received, outcome, error }, context.get('admitted') === true)
  }
}

/** Records a command before it runs. This middleware runs after the guards, so it records only what they let pass. */
export function auditAdmitted(recorder: CommandRecorder): MiddlewareHandler {
  return async (context: Context<{ Variables: AuditVariables }>, next) => {
    const received = context.get('received')
    if (received) {
      context.set('admitted', true)
      await recorder.received(received)
    }
    await next()
  }
}

/** Returns the audited command of a request; null if the request is a query or unknown. */
export function commandOf(method: string, path: string): AuditedCommand | null {
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
  // The host guard answers with 403 without throwing an error.
  return res.status === 403 ? 'InvalidRequest' : 'InternalError'
}

/** Returns null if the client has already disconnected, and for a request from within this process. */
export function remoteAddressOf(context: Context): string | null {
  const { incoming } = (context.env ?? {}) as Partial<HttpBindings>
  return incoming?.socket.remoteAddress ?? null
}
