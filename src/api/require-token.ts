import { createHash, timingSafeEqual } from 'node:crypto'
import type { MiddlewareHandler } from 'hono'
import { RefusedError } from '../domain/errors.ts'

/** Hono takes a HEAD for a GET. */
const openMethods = ['GET', 'HEAD']

/**
 * Lets pass who shows the token (`Authorization: Bearer …`). Everything else is answered 401, unknown paths as well.
 * @param openPaths what anybody may read: it tells nothing of the clusters
 */
export function requireToken(token: string, openPaths: readonly string[]): MiddlewareHandler {
  const expected = digestOf(token)
  return async (context, next) => {
    if (!(openMethods.includes(context.req.method) && openPaths.includes(context.req.path))) {
      const [, given] = /^Bearer +(\S+)$/i.exec(context.req.header('authorization') ?? '') ?? []
      // Digests have one length: how long the comparison takes tells nothing of the token, nor of its length.
      if (given === undefined || !timingSafeEqual(digestOf(given), expected)) {
        context.header('WWW-Authenticate', 'Bearer')
        throw new RefusedError(
          'Unauthorized',
          `Authorization: ${given === undefined ? 'is missing' : 'the token is not the right one'}; send Bearer and the token that tandem was started with (--tokenFile)`,
        )
      }
    }
    await next()
  }
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
