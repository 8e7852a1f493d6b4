import { createServer as createHttpServer, type Server } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { getRequestListener, type HttpBindings } from '@hono/node-server'
import { answerBadClients, badRequest } from './bad-client.ts'
import { ConnectionsByAddress } from './connections-by-address.ts'
import { ThrottledReport } from './throttled-report.ts'

export interface ServeOptions {
  api: { fetch: (request: Request, env: Partial<HttpBindings>) => Response | Promise<Response> }
  port: number
  hostname?: string
  /** Certificate and key as PEM. With them the server accepts only HTTPS. */
  tls?: { cert: string; key: string } | null
  /** How long a client may take to send the header of a request. */
  headersTimeoutSeconds?: number
  /** How long a client may take to send the whole request. Handling it may take longer, as a commit does. */
  requestTimeoutSeconds?: number
  /** Maximum number of open connections. Further ones are closed as soon as they are made. */
  connectionsMax?: number
  /** Maximum number of open connections from one address (IPv6: one /64 network). It does not apply to loopback. */
  connectionsPerAddressMax?: number
  /** Called when a limit has closed connections, at most once a minute for each limit. */
  onConnectionsRefused?: (refused: RefusedConnections) => void
  /** Called when closing begins, to end the responses that would never end by themselves. */
  onClosing?: () => void
}

export interface RefusedConnections {
  /** Number of connections closed since the last call for this limit. */
  connections: number
  /** The limit that was reached. */
  connectionsMax: number
  /** The latest address that reached its own limit; null if the limit for all addresses together was reached. */
  remoteAddress: string | null
}

export interface ServedApi {
  port: number
  /** Accepts no new requests, gives those in progress a moment to finish, then closes all connections. */
  close(): Promise<void>
}

const closeGraceMilliseconds = 2_000
/**
 * This is many times what scrapers, dashboards (six connections for each browser) and commands need, and far below the
 * usual limit of open files (1,024).
 */
const connectionsMaxDefault = 256
/** A quarter of the total is enough for several users' dashboards, or scrapers, behind one router. */
const connectionsPerAddressMaxDefault = 64

/**
 * Serves the API. Port 0 selects a free port.
 * @throws Error that says why the address cannot be used
 */
export async function serveApi(options: ServeOptions): Promise<ServedApi> {
  const {
    api,
    port,
    hostname = '127.0.0.1',
    tls = null,
    headersTimeoutSeconds = 10,
    requestTimeoutSeconds = 30,
    connectionsMax = connectionsMaxDefault,
    connectionsPerAddressMax = connectionsPerAddressMaxDefault,
    onConnectionsRefused = () => {},
    onClosing = () => {},
  } = options
  const limits = {
    headersTimeout: headersTimeoutSeconds * 1000,
    requestTimeout: requestTimeoutSeconds * 1000,
    // Node checks for late clients only this often. Its default would give them up to half a minute more.
    connectionsCheckingInterval: 500,
  }
  const listener = getRequestListener((request, env) => api.fetch(request, env as HttpBindings), {
    overrideGlobalObjects: false,
    errorHandler: () => Response.json(badRequest('the request could not be understood'), { status: 400 }),
  })
  const server = tls
    ? createHttpsServer({ ...limits, handshakeTimeout: limits.headersTimeout, ...tls, minVersion: 'TLSv1.2' }, listener)
    : createHttpServer(limits, listener)
  server.maxConnections = connectionsMax
  const refused = new ThrottledReport(onConnectionsRefused)
  server.on('drop', () => refused.add((connections) => ({ connections, connectionsMax, remoteAddress: null })))
  limitEachAddress(server, connectionsPerAddressMax, onConnectionsRefused)
  answerBadClients(server)
  await listen(server, port, hostname)
  return { port: (server.address() as AddressInfo).port, close: () => close(server, onClosing) }
}

function limitEachAddress(
  server: Server,
  connectionsMax: number,
  onRefused: (refused: RefusedConnections) => void,
): void {
  const byAddress = new ConnectionsByAddress(connectionsMax)
  const refused = new ThrottledReport(onRefused)
  server.on('connection', (socket) => {
    const { remoteAddress = null } = socket
    if (byAddress.admit(socket)) return
    refused.add((connections) => ({ connections, connectionsMax, remoteAddress }))
  })
}

function listen(server: Server, port: number, hostname: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => reject(listenError(cause, port, hostname)))
    server.listen(port, hostname, () => resolve())
  })
}

function listenError(cause: NodeJS.ErrnoException, port: number, hostname: string): Error {
  if (cause.code === 'EADDRINUSE') {
    return new Error(`port ${port} on ${hostname} is already in use; stop what listens there or give another --port`, {
      cause,
    })
  }
  if (cause.code === 'EACCES') {
    return new Error(`port ${port} on ${hostname} needs privileges; give a --port above 1023`, { cause })
  }
  if (cause.code === 'EADDRNOTAVAIL') {
    return new Error(`${hostname} is not an address of this machine; use another --bind`, { cause })
  }
  return new Error(`cannot listen on ${hostname} port ${port}: ${cause.message}`, { cause })
}

async function close(server: Server, onClosing: () => void): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  onClosing()
  // `server.close` closes only the connections that are idle now. A connection whose response ends later would stay open
  // for the client's next request.
  const whenIdle = setInterval(() => server.closeIdleConnections(), 20)
  const whenLate = setTimeout(() => server.closeAllConnections(), closeGraceMilliseconds)
  await closed
  clearInterval(whenIdle)
  clearTimeout(whenLate)
}
