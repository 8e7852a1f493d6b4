import { isIPv4 } from 'node:net'
import type { HonoRequest, MiddlewareHandler } from 'hono'
import type { FailureAnswer } from './schemas.ts'

/**
 * Keeps web pages out. Without a token the API's guard is that it is reached from this machine only. A browser
 * on this machine would carry a foreign page's requests here, so a request must name a host that only local programs
 * know it by (a rebound DNS name shows in Host), and a page's request (it has an Origin) must come from this very
 * host. A GET that a page makes for an image or a script has no Origin, but browsers say in Sec-Fetch-Site that it comes from
 * another site (https://www.w3.org/TR/fetch-metadata/); other clients do not send that header. No CORS header is ever sent. With `anyHost` other machines reach it, by whatever names they have for it: the
 * token, which no page knows, is the guard then.
 */
export function guardHost(anyHost: boolean): MiddlewareHandler {
  return async (context, next) => {
    const url = new URL(context.req.url)
    // Node refuses an HTTP/1.1 request without Host; a Request built in-process has it in its URL only.
    const host = context.req.header('host') ?? url.host
    const name = hostName(host)
    if (name === null || !(anyHost || isLoopback(name))) {
      return context.json(forbidden('Host: must be localhost or a loopback address'), 403)
    }
    const origin = context.req.header('origin')
    if (origin !== undefined && !isSameOrigin(origin, `${url.protocol}//${host}`)) {
      return context.json(forbidden('Origin: requests from other origins are not accepted'), 403)
    }
    if (context.req.header('sec-fetch-site') === 'cross-site' && !isVisit(context.req)) {
      return context.json(forbidden('Sec-Fetch-Site: requests from other sites are not accepted'), 403)
    }
    await next()
    return undefined
  }
}

/** Somebody follows a link to the dashboard: no other page gets to see what comes, and it is not shown within one either. */
function isVisit(request: HonoRequest): boolean {
  const { method, path } = request
  const [mode, destination] = [request.header('sec-fetch-mode'), request.header('sec-fetch-dest')]
  return method === 'GET' && path === '/' && mode === 'navigate' && destination === 'document'
}

function forbidden(errorDescription: string): FailureAnswer {
  return { success: false, error: 'InvalidRequest', errorDescription }
}

/** The name in a Host header without its port, as browsers normalise it; null when it is not a plain host. */
function hostName(host: string): string | null {
  if (!/^[\w.:[\]-]+$/.test(host)) return null
  try {
    return new URL(`http://${host}`).hostname.replace(/\.$/, '')
  } catch {
    return null
  }
}

function isLoopback(name: string): boolean {
  return name === 'localhost' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'))
}

function isSameOrigin(origin: string, own: string): boolean {
  try {
    // URL drops default ports and lower-cases, as the browser did for Origin; "null" and lists do not parse.
    return new URL(origin).origin === new URL(own).origin
  } catch {
    return false
  }
}
