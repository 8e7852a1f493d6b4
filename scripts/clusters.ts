/**
 * Starts two temporary clusters for trying tandem, until Ctrl-C: `npm run clusters -- [--members 3] [--auth]`.
 */
import { once } from 'node:events'
import { parseArgs } from 'node:util'
import { startReplicaSet } from '../test/support/replica-set.ts'

const { values } = parseArgs({
  options: { members: { type: 'string', default: '1' }, auth: { type: 'boolean', default: false } },
})
const members = Number(values.members)
if (![1, 3, 5, 7].includes(members)) throw new Error('--members takes 1, 3, 5 or 7')

const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM'), once(process, 'SIGHUP')])
const options = { members, auth: values.auth, oplogSizeMB: 990 }
const clusters = await Promise.all([
  startReplicaSet({ ...options, name: 'cluster0' }),
  startReplicaSet({ ...options, name: 'cluster1' }),
])
const [uri0, uri1] = clusters.map(({ uri }) => uri)
console.log(`
cluster0  ${uri0}
cluster1  ${uri1}

  npx tandem --cluster0 '${uri0}' --cluster1 '${uri1}'

Ctrl-C stops both clusters and removes their data.`)
await stopped
await Promise.all(clusters.map((cluster) => cluster.stop()))
