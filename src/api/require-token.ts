import type { Context, MiddlewareHandler } from 'hono'
import { RefusedError } from '../domain/errors.ts'
import { type RefusalVariables, remoteAddressOf } from './audit-commands.ts'
import type { FailedTokens } from './failed-tokens.ts'
import { bearerOf, type Tokens } from './tokens.ts'

/** Hono handles a HEAD like a GET. */
const readingMethods = ['GET', 'HEAD']

/**
 * Accepts requests with a valid token (`Authorization: Bearer …`). The read-only token allows only GET and HEAD. All
 * other requests, even for unknown paths, are refused: with 403 if the read-only token does not allow them, otherwise
 * with 401, or with 429 if requests without a valid token are too frequent. The header `Tandem-Access` of an answer
 * names the token that the request sent: `control` or `read`.
 * @param openPaths paths that GET and HEAD read without a token, because they contain nothing about the clusters
 */
export function requireToken(tokens: Tokens, failed: FailedTokens, openPaths: readonly string[]): MiddlewareHandler {
  return async (context: Context<{ Variables: RefusalVariables }>, next) => {
    const { method, path } = context.req
    const reads = readingMethods.includes(method)
    if (reads && openPaths.includes(path)) return await next()
    const authorization = context.req.header('authorization')
    const sent = tokens.sentIn(authorization)
    if (sent === 'none') {
      const waitSeconds = failed.add(remoteAddressOf(context))
      if (waitSeconds !== null) {
        context.header('Retry-After', String(waitSeconds))
        context.set('unaudited', true)
        throw new RefusedError(
          'TooManyRequests',
          `Authorization: too many requests without the right token came from this address; send one with the current token (--token or --tokenFile), or wait ${waitSeconds} s`,
        )
      }
      context.header('WWW-Authenticate', 'Bearer')
      const problem = bearerOf(authorization) === null ? 'is missing' : 'the token is not the right one'
      throw new RefusedError(
        'Unauthorized',
        `Authorization: ${problem}; send Bearer and the current token (--token or --tokenFile)`,
      )
    }
    // Tells the dashboard what its token allows. This is a header, because the answers have the shapes of mongosync.
    context.header('Tandem-Access', sent)
    if (sent === 'read' && !reads) {
      throw new RefusedError(
        'Forbidden',
        `Authorization: the token of --readTokenFile allows only GET, and this is a ${method}; send the token of --tokenFile. Nothing was changed`,
      )
    }
    return await next()
  }
}
