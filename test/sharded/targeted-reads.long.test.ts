import { expect, test } from 'vitest'
import { AskedDocuments } from '../support/asked-documents.ts'
import { canCommit, commit } from '../support/commits.ts'
import { KeyedWrites } from '../support/keyed-writes.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'
import { untilApplied } from '../support/until-applied.ts'
import { untilTargeted } from '../support/until-targeted.ts'

/** tandem reads a changed document from only one shard of the source, although the shard key is not `_id`. */

const pair = new ShardedPair({ shards: 4 }, {})
const seed = process.env['TANDEM_SEED'] ?? 'targeted'
const documents = 4_000
const writes = 4_000

test.each<[string, Record<string, 1 | 'hashed'>, unknown[]]>([
  ['a range', { k: 1 }, [250, 500, 750]],
  ['hashed', { k: 'hashed' }, []],
  ['of two fields, of which the first one has few values', { region: 1, k: 1 }, [1, 2]],
])(
  'with a shard key that is %s, tandem requests at most 1.1 documents per write, and sends at most 1.1 deletes per removed document',
  async (_what, key, splitPoints) => {
    const { source, sourceClient: client } = pair
    await client.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    const collection = await shardedCollection(source, client, 'things', key, splitPoints)
    if ('region' in key) {
      await source.split('app.things', { region: 1, k: 500 })
      await source.moveChunk('app.things', { region: 1, k: 500 }, 3)
    }
    const writing = await KeyedWrites.on(collection, documents, seed)
    await using asked = await AskedDocuments.from(source, 'things')
    await using written = await AskedDocuments.from(pair.destination, 'things')
    const tandem = await pair.startSync({ verification: { enabled: false } })
    await canCommit(tandem)
    await untilTargeted(pair, collection, { _id: 1, k: 7, region: 1 }, asked)

    asked.restart()
    written.restart()
    await writing.run(writes)
    await untilApplied(pair, [['app', 'things']])
    const counts = await asked.read()
    const [updates, removals] = [
      await written.statements('things', 'update'),
      await written.statements('things', 'remove'),
    ]
    await commit(tandem)
    await pair.expectEqual()
    const { keyChanges, removed } = writing.counts
    const total = counts.reduce((sum, { documents }) => sum + documents, 0)
    expect(total / writes, JSON.stringify(counts)).toBeLessThan(1.1)
    const sum = (all: number[]): number => all.reduce((one, other) => one + other, 0)
    // A changed shard key causes two events, unless both values belong to one shard. The statements do not include inserts.
    const statements = (sum(updates) + sum(removals)) / (writes + keyChanges)
    expect(statements, JSON.stringify({ updates, removals })).toBeLessThan(1.1)
    expect(sum(removals) / removed, JSON.stringify(removals)).toBeLessThan(1.1)
  },
)
