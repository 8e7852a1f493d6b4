import { MongoClient } from 'mongodb'
import type { Random } from '../support/random.ts'
import type { ShardedCluster } from '../support/sharded-cluster.ts'
import { until } from '../support/until.ts'

/** The collections of the sharded workload that have chunks of ranges, each with a document that has the shard key value. */
const documentsAt: Record<string, (value: number) => object> = {
  ranged: (k) => ({ k }),
  dotted: (k) => ({ a: { b: k }, k }),
  withId: (k) => ({ k, _id: k }),
}
const valuesMax = 40
const movesOfEach = 2

/** Starts the destination's balancer. tandem stops it during the sync, and must start it again afterwards. */
export async function startBalancer({ mongoses, uri }: ShardedCluster): Promise<void> {
  await using client = await MongoClient.connect(mongoses[0]?.uri ?? uri)
  await client.db('admin').command({ balancerStart: 1 })
}

/** Waits until the balancer of the destination is on again, and moves chunks there. Returns the number of moves. */
export async function moveAfterCommit(destination: ShardedCluster, random: Random): Promise<number> {
  const { mongoses, uri, shards } = destination
  await using client = await MongoClient.connect(mongoses[0]?.uri ?? uri)
  await until('a balancer that is on again', async () => {
    const { mode } = await client.db('admin').command({ balancerStatus: 1 })
    if (mode !== 'full') throw new Error(`the balancer's mode is ${mode}`)
  })
  let moves = 0
  for (const [name, documentAt] of Object.entries(documentsAt)) {
    for (let move = 0; move < movesOfEach; move++) {
      const [value, shard] = [random.int(0, valuesMax), random.int(0, shards.length - 1)]
      // An election that has just ended may interrupt a move.
      await until(`a move of a chunk of ${name}`, () => destination.moveChunk(`app.${name}`, documentAt(value), shard))
      moves += 1
    }
  }
  return moves
}
