import { Lease } from '../../src/mongo/lease.ts'
import { testCluster, testContext } from './clusters.ts'

/** This program takes a lease, prints its epoch, sends one write, and runs until it is killed. */
const [uri, name, id, incarnation] = process.argv.slice(2) as [string, string, string, string]
const cluster = testCluster(uri, `tandem:${id}:${incarnation}`)
const lease = new Lease(cluster, name, { id, incarnation }, testContext())
await lease.acquire()
process.stdout.write(`${lease.epoch}\n`)
// A test may make this write hang with a fail point.
await cluster.write('app', { insert: `writes_of_${name}`, documents: [{ _id: incarnation }] }).catch(() => {})
setInterval(() => {}, 1_000)
