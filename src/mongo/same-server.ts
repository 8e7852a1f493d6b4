import { createRequire } from 'node:module'
import type { ClientSession, MongoClient } from 'mongodb'

/**
 * Sends all commands of a session to one router, or to one member of a replica set. A server knows only the cursors that
 * were opened on it, and the driver sends a raw `getMore` or `killCursors` to any router of the connection string, or to
 * any member that the read preference allows. The driver pins its own cursors, but exports no way to do that. Therefore
 * this file wraps server selection. The driver's version is pinned exactly; test/mongo/same-server.mongo.test.ts fails
 * when an upgrade changes what this file relies on.
 */
interface ServerDescription {
  address: string
  type: string
}
type ServerSelector = (topology: unknown, servers: ServerDescription[]) => ServerDescription[]
type SelectServer = (
  this: { description: { type: string } },
  selector: unknown,
  options: { session?: ClientSession },
) => Promise<{ description: ServerDescription }>
const require = createRequire(import.meta.url)
const { Topology } = require('mongodb/lib/sdam/topology.js') as {
  Topology: { prototype: { selectServer: SelectServer } }
}

/**
 * The server address of each session that stays at one server. Null until the session's first command has selected a
 * server. On a replica set, the address remains null unless secondaries may answer.
 */
const pinned = new WeakMap<ClientSession, string | null>()
/** Sessions whose commands secondaries may answer. */
const readsSecondaries = new WeakSet<ClientSession>()

const selectServer = Topology.prototype.selectServer
Topology.prototype.selectServer = async function (selector, options) {
  const { session } = options
  const address = session && pinned.get(session)
  if (!session || address === undefined) return await selectServer.call(this, selector, options)
  // The selection waits for a server that is not available, because it may return. The driver does the same for its
  // cursors.
  const sameServer: ServerSelector = (_topology, servers) =>
    servers.filter((server) => server.address === address && server.type !== 'Unknown')
  const server = await selectServer.call(this, address === null ? selector : sameServer, options)
  // A replica set has one primary, which is selected anyway unless secondaries may answer. The topology type is known
  // only after a server was selected.
  if (this.description.type === 'Sharded' || readsSecondaries.has(session)) {
    pinned.set(session, server.description.address)
  }
  return server
}

/**
 * From now on, all commands of this session go to one router. The next command selects it, unless `address` is given.
 * @param address host:port of the router
 */
export function stayAtOneRouter(session: ClientSession, address: string | null = null): void {
  pinned.set(session, address)
}

/** From now on, all commands of this session go to one member of a replica set, which the next command selects. */
export function stayAtOneMember(session: ClientSession): void {
  pinned.set(session, null)
  readsSecondaries.add(session)
}

interface Connected {
  topology?: { description: { type: string; servers: ReadonlyMap<string, ServerDescription> } }
}

/** The addresses of all routers that the client knows, whether they answer or not. Empty for a replica set. */
export function routersOf(client: MongoClient): string[] {
  const description = (client as Connected).topology?.description
  return description?.type === 'Sharded' ? [...description.servers.keys()] : []
}
