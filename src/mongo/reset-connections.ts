import { createRequire } from 'node:module'
import type { Socket } from 'node:net'

/**
 * A connection whose command is given up is reset. Closed in order, its kernel would go on sending what lies in the send buffer, and
 * the server would carry out a write long after its retry. The driver (7.8) closes in order; its version is pinned exactly, and
 * test/mongo/given-up-connection.mongo.test.ts fails when an upgrade changes what is relied on.
 */
interface DriverConnection {
  socket: Socket
}
type Cleanup = (this: DriverConnection, error: Error) => void
type Command = (this: DriverConnection, ...given: unknown[]) => Promise<unknown>
const require = createRequire(import.meta.url)
const { Connection } = require('mongodb/lib/cmap/connection.js') as {
  Connection: { prototype: { cleanup: Cleanup; command: Command } }
}

/** A command was sent on them that is not answered yet. */
const underWay = new WeakSet<DriverConnection>()

const { command, cleanup } = Connection.prototype
Connection.prototype.command = async function (...given) {
  underWay.add(this)
  try {
    return await command.apply(this, given)
  } finally {
    underWay.delete(this)
  }
}

Connection.prototype.cleanup = function (error) {
  if (underWay.has(this)) reset(this.socket)
  cleanup.call(this, error)
}

interface TcpHandle {
  reset?: (done: () => void) => number
}

/** Node (20) resets no TLS socket: the handle of the TCP connection below it is reset then, and the caller destroys the socket. */
function reset(socket: Socket): void {
  const handle = (socket as { _handle?: (TcpHandle & { _parent?: TcpHandle }) | null })._handle
  if (handle?.reset) socket.resetAndDestroy()
  else handle?._parent?.reset?.(() => {})
}
