import { Lease } from '../../src/mongo/lease.ts'
import { testCluster, testContext } from './clusters.ts'

/** A process of its own that takes a lease, says so, and then writes until it is killed. */
const [uri, name, id, incarnation] = process.argv.slice(2) as [string, string, string, string]
const cluster = testCluster(uri, `tandem:${id}:${incarnation}`)
const lease = new Lease(cluster, name, { id, incarnation }, testContext())
await lease.acquire()
process.stdout.write(`${lease.epoch}\n`)
// Hangs where the test wants it to; the answer never comes.
await cluster.write('app', { insert: `writes_of_${name}`, documents: [{ _id: incarnation }] }).catch(() => {})
setInterval(() => {}, 1_000)
