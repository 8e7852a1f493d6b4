import type { MiddlewareHandler } from 'hono'
import { RefusedError } from '../domain/errors.ts'
import { bearerOf, type Tokens } from './tokens.ts'

/** Hono handles a HEAD as a GET. */
const readingMethods = ['GET', 'HEAD']

/**
 * Admits requests that show a token (`Authorization: Bearer …`); with the read-only one, GET (and HEAD) alone. Everything else is
 * answered 401 or 403, unknown paths as well.
 * @param openPaths what anybody may read: it says nothing of the clusters
 */
export function requireToken(tokens: Tokens, openPaths: readonly string[]): MiddlewareHandler {
  return async (context, next) => {
    const { method, path } = context.req
    const reads = readingMethods.includes(method)
    if (reads && openPaths.includes(path)) return await next()
    const authorization = context.req.header('authorization')
    const shown = tokens.shownIn(authorization)
    if (shown === 'none') {
      context.header('WWW-Authenticate', 'Bearer')
      const problem = bearerOf(authorization) === null ? 'is missing' : 'the token is not the right one'
      throw new RefusedError(
        'Unauthorized',
        `Authorization: ${problem}; send Bearer and the token that tandem was started with (--tokenFile)`,
      )
    }
    if (shown === 'read' && !reads) {
      throw new RefusedError(
        'Forbidden',
        `Authorization: the token of --readTokenFile allows GET alone, and this is a ${method}; send the token of --tokenFile. Nothing was changed`,
      )
    }
    return await next()
  }
}
