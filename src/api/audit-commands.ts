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

/** Where commands are written down. */
export interface CommandBook {
  /** Resolves when the command may be carried out. Never rejects. */
  received(call: ReceivedCommand): Promise<void>
  /**
   * `admitted` is false when Host, Origin or token kept the command out, and `received` was not called: strangers who are refused a
   * thousand times must not push out the sync's own trail.
   */
  answered(call: CommandCall, admitted: boolean): void
}

/** Set by handlers that answer with a refusal without throwing it. */
export interface RefusalVariables {
  refusedWith?: RefusalName
  /** One of very many, which would fill the log. */
  unaudited?: boolean
}

interface AuditVariables extends RefusalVariables {
  received?: ReceivedCommand
  admitted?: boolean
}

/** Writes down what became of each command. It is placed before every guard, and never reads a body. */
export function auditCommands(book: CommandBook, tokenOf: (context: Context) => TokenUse): MiddlewareHandler {
  return async (context: Context<{ Variables: AuditVariables }>, next) => {
    const command = commandOf(context.req.method, context.req.path)
    if (command === null) return await next()
    const received: ReceivedCommand = {
      id: randomUUID(),
      time: new Date().toISOString(),
      command,
      // Read before the command: the connection of a client that has hung up by then has no address any more.
      remoteAddress: remoteAddressOf(context),
      token: tokenOf(context),
    }
    context.set('received', received)
    await next()
    if (context.get('unaudited')) return
    const error = errorOf(context)
    const outcome = error === null ? 'accepted' : 'refused'
    book.answered({ ...received, outcome, error }, context.get('admitted') === true)
  }
}

/** Writes down a command that the guards let pass, before it is carried out. It is placed behind them. */
export function auditAdmitted(book: CommandBook): MiddlewareHandler {
  return async (context: Context<{ Variables: AuditVariables }>, next) => {
    const received = context.get('received')
    if (received) {
      context.set('admitted', true)
      await book.received(received)
    }
    await next()
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

/** Null when the client has hung up already, and for a request within the process. */
export function remoteAddressOf(context: Context): string | null {
  const { incoming } = (context.env ?? {}) as Partial<HttpBindings>
  return incoming?.socket.remoteAddress ?? null
}
