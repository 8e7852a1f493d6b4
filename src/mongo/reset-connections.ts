import { createRequire } from 'node:module'
import type { Socket } from 'node:net'

/**
 * Resets a connection when tandem no longer waits for its command. If it were closed normally, the kernel would still
 * send the contents of the send buffer, and the server would execute a write long after its retry. The driver (7.8)
 * closes normally. Its version is pinned exactly; test/mongo/given-up-connection.mongo.test.ts fails when an upgrade
 * changes what this file relies on.
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

/** Connections with a command that is not answered yet. */
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

/**
 * Node (20) does not reset TLS sockets. The handle of the underlying TCP connection is reset instead, and the caller
 * destroys the socket.
 */
function reset(socket: Socket): void {
  const handle = (socket as { _handle?: (TcpHandle & { _parent?: TcpHandle }) | null })._handle
  if (handle?.reset) socket.resetAndDestroy()
  else handle?._parent?.reset?.(() => {})
}
