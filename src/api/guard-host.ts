import { isIPv4 } from 'node:net'
import type { HonoRequest, MiddlewareHandler } from 'hono'
import { failure } from './answers.ts'

/**
 * Refuses requests of foreign web pages. Without a token, the API is protected only because it accepts no connections
 * from other machines. But a browser on this machine could send a foreign page's requests. Therefore the Host
 * header must name a loopback host (a rebound DNS name appears in Host), and a page's request (which has an Origin)
 * must come from the same host. When a page loads an image or a script, the GET has no Origin, but browsers report in
 * Sec-Fetch-Site that it comes from another site (https://www.w3.org/TR/fetch-metadata/). Other clients do not send
 * that header. The API never sends a CORS header.
 *
 * With `anyHost`, Host may have any name. The token, which no foreign page knows, then protects the API.
 */
export function guardHost(anyHost: boolean): MiddlewareHandler {
  return async (context, next) => {
    const url = new URL(context.req.url)
    // Node refuses an HTTP/1.1 request without Host. A Request that is built in this process has the host only in its
    // URL.
    const host = context.req.header('host') ?? url.host
    const name = hostName(host)
    if (name === null || !(anyHost || isLoopback(name))) {
      return failure(context, 403, 'InvalidRequest', 'Host: must be localhost or a loopback address')
    }
    const origin = context.req.header('origin')
    if (origin !== undefined && !isSameOrigin(origin, `${url.protocol}//${host}`)) {
      return failure(context, 403, 'InvalidRequest', 'Origin: requests from other origins are not accepted')
    }
    if (context.req.header('sec-fetch-site') === 'cross-site' && !isVisit(context.req)) {
      return failure(context, 403, 'InvalidRequest', 'Sec-Fetch-Site: requests from other sites are not accepted')
    }
    await next()
    return undefined
  }
}

/**
 * True if a user follows a link to the dashboard or to a page of the documentation. No other page can read the answer,
 * and these pages cannot be embedded.
 */
function isVisit(request: HonoRequest): boolean {
  const { method, path } = request
  const [mode, destination] = [request.header('sec-fetch-mode'), request.header('sec-fetch-dest')]
  const isPage = path === '/' || path.startsWith('/docs/')
  return method === 'GET' && isPage && mode === 'navigate' && destination === 'document'
}

/** The name in a Host header without its port, as browsers normalise it; null if it is not a plain host. */
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
