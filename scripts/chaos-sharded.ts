import { parseArgs } from 'node:util'
import { startShardedCluster } from '../test/support/sharded-cluster.ts'
import { runShardedTeam } from '../test/support/sharded-team.ts'

/**
 * Full counts of what `npm test` runs a sample of:
 *   npm run chaos:sharded -- --seeds 30 [--instances 2] [--from 1] [--shards 2] [--destinationShards 2]
 */
const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '30' },
    instances: { type: 'string', default: '2' },
    from: { type: 'string', default: '1' },
    shards: { type: 'string', default: '2' },
    destinationShards: { type: 'string', default: '2' },
    steps: { type: 'string', default: '120' },
  },
})
const [source, destination] = await Promise.all([
  startShardedCluster({ shards: Number(values.shards) }),
  startShardedCluster({ shards: Number(values.destinationShards) }),
])
let passed = 0
const failed: number[] = []
for (let seed = Number(values.from); seed < Number(values.from) + Number(values.seeds); seed++) {
  const from = performance.now()
  try {
    const result = await runShardedTeam({ source, destination }, seed, Number(values.instances), Number(values.steps))
    const sum = result.copied.reduce((all, bytes) => all + bytes, 0)
    if (result.differences.length > 0) throw new Error(result.differences.join('\n'))
    if (sum !== result.total) throw new Error(`copied ${result.copied.join(' + ')} of ${result.total} bytes`)
    passed += 1
    const counts = Object.entries(result.counts).map(([what, count]) => `${what} ${count}`)
    const seconds = ((performance.now() - from) / 1000).toFixed(1)
    process.stdout.write(
      `seed ${seed}: equal in ${seconds} s, copied ${result.copied.join('+')}; ${counts.join(', ')}\n`,
    )
  } catch (error) {
    failed.push(seed)
    process.stdout.write(`seed ${seed}: FAILED ${error instanceof Error ? error.message : String(error)}\n`)
  }
}
await Promise.all([source.stop(), destination.stop()])
process.stdout.write(`${passed} passed, ${failed.length} failed${failed.length > 0 ? `: ${failed.join(', ')}` : ''}\n`)
process.exit(failed.length > 0 ? 1 : 0)
