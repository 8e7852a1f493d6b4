import { createRequire } from 'node:module'
import type { Socket } from 'node:net'

/**
 * When this module is imported, it changes the driver: a connection whose command has no reply yet is reset when it is
 * closed. The driver (7.8) closes it normally. The kernel would then still send the contents of the send buffer, and the
 * server could execute a write long after its retry. The version of the driver is pinned exactly.
 * test/mongo/given-up-connection.mongo.test.ts fails if an upgrade changes what this file relies on.
 */

interface DriverConnection {
  socket: Socket
}
type Cleanup = (this: DriverConnection, error: Error) => void
type Command = (this: DriverConnection, ...parameters: unknown[]) => Promise<unknown>
const require = createRequire(import.meta.url)
const { Connection } = require('mongodb/lib/cmap/connection.js') as {
  Connection: { prototype: { cleanup: Cleanup; command: Command } }
}

/** The connections with a command that has no reply yet. */
const awaitingReply = new WeakSet<DriverConnection>()

const { command, cleanup } = Connection.prototype
Connection.prototype.command = async function (...parameters) {
  awaitingReply.add(this)
  try {
    return await command.apply(this, parameters)
  } finally {
    awaitingReply.delete(this)
  }
}

Connection.prototype.cleanup = function (error) {
  if (awaitingReply.has(this)) reset(this.socket)
  cleanup.call(this, error)
}

interface TcpHandle {
  reset?: (done: () => void) => number
}

/**
 * Resets the TCP connection of a socket. Node.js (20) cannot reset a TLS socket. For such a socket, this resets the
 * handle of the underlying TCP connection, and the caller destroys the socket.
 */
function reset(socket: Socket): void {
  const handle = (socket as { _handle?: (TcpHandle & { _parent?: TcpHandle }) | null })._handle
  if (handle?.reset) socket.resetAndDestroy()
  else handle?._parent?.reset?.(() => {})
}
