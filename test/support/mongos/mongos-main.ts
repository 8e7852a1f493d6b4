/**
 * A stand-in for a missing mongos: `mongos-main.ts --configdb name/host --port N --router host [--keyFile F]`.
 *
 * The program implements MongoDB's wire protocol for clients. It forwards their commands to MongoDB 6.0's own router code, which
 * every mongod contains for commands on behalf of other shards (clusterFind, clusterInsert…), and to the internal commands of
 * the config server and the shards (_configsvrMoveRange, _shardsvrDropCollection…).
 *
 *                      ┌── documents ──▶ router: a hidden mongod with a shard's identity, which is not a shard of the cluster
 *   client ── mongos ──┼── definitions ──▶ primary shard of the database, or config server
 *                      └── change streams, transactions, retryable writes ──▶ shards
 */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { parseArgs } from 'node:util'
import { Catalog } from './catalog.ts'
import { serveClient } from './client-connection.ts'
import { ClusterClock } from './cluster-clock.ts'
import type { Mongos } from './command.ts'
import { type LinkSetting, Links } from './link.ts'

const { values: options } = parseArgs({
  options: {
    configdb: { type: 'string' },
    port: { type: 'string' },
    router: { type: 'string' },
    keyFile: { type: 'string' },
  },
})
const { configdb, port, router, keyFile } = options
if (!configdb || !port || !router)
  throw new Error('usage: mongos-main.ts --configdb S --port N --router H [--keyFile F]')

const clock = new ClusterClock()
const key = keyFile ? readFileSync(keyFile, 'utf8').replace(/\s/g, '') : null
const setting: LinkSetting = { clock, key }
const links = new Links(setting)
const mongos: Mongos = {
  router,
  catalog: new Catalog(configdb, router, links),
  clock,
  links,
  hasAccessControl: key !== null,
  openLinks: () => new Links(setting),
  streams: new Map(),
  cursorHosts: new Map(),
  answered: new Map(),
  transactions: new Map(),
}

createServer((socket) => serveClient(socket, mongos)).listen(Number(port), '127.0.0.1')
