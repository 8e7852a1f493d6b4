import { expect, test } from 'vitest'
import { AskedDocuments } from '../support/asked-documents.ts'
import { canCommit, commit } from '../support/commits.ts'
import { Random } from '../support/random.ts'
import { ShardedPair, shardedCollection } from '../support/sharded-pair.ts'
import { until } from '../support/until.ts'
import { untilApplied } from '../support/until-applied.ts'

/** Changed documents are read from one shard of the source, although the shard key is not `_id`. */

const pair = new ShardedPair({ shards: 4 }, {})
const seed = process.env['TANDEM_SEED'] ?? 'targeted'
const documents = 4_000
const writes = 4_000
/** The share of each kind of write. The others are updates. */
const shares = { insert: 0.25, delete: 0.08, keyChange: 0.03 }

test.each<[string, Record<string, 1 | 'hashed'>, unknown[]]>([
  ['a range', { k: 1 }, [250, 500, 750]],
  ['hashed', { k: 'hashed' }, []],
  ['of two fields, of which the first one has few values', { region: 1, k: 1 }, [1, 2]],
])(
  'with a shard key that is %s, at most 1.1 documents are asked for per write, and 1.1 deleted for each that is gone',
  async (_what, key, splitPoints) => {
    const { source, sourceClient: client } = pair
    await client.db('admin').command({ enableSharding: 'app', primaryShard: source.shards[0]?.name })
    const collection = await shardedCollection(source, client, 'things', key, splitPoints)
    if ('region' in key) {
      await source.split('app.things', { region: 1, k: 500 })
      await source.moveChunk('app.things', { region: 1, k: 500 }, 3)
    }
    const rows = Array.from({ length: documents }, (_, _id) => ({ _id, k: (_id * 7) % 1_000, region: _id % 4, n: 0 }))
    await collection.insertMany(rows)
    await using asked = await AskedDocuments.from(source, 'things')
    await using written = await AskedDocuments.from(pair.destination, 'things')
    const tandem = await pair.startSync({ verification: { enabled: false } })
    await canCommit(tandem)
    const names = [['app', 'things']] as const
    // tandem reads the chunks in the background.
    await until('an update that one shard is asked for', async () => {
      asked.restart()
      await collection.updateOne({ _id: 1, k: 7, region: 1 }, { $inc: { n: 1 } })
      await untilApplied(pair, names)
      const counts = await asked.read()
      expect(counts.filter(({ commands }) => commands > 0)).toHaveLength(1)
    })

    const random = new Random(seed)
    const live = new Map(rows.map(({ _id, k, region }) => [_id, { _id, k, region }]))
    let next = documents
    let writesMade = 0
    let removed = 0
    let changed = 0
    asked.restart()
    written.restart()
    while (writesMade < writes) {
      const operations: Parameters<typeof collection.bulkWrite>[0][number][] = []
      const changedKeys: (() => Promise<unknown>)[] = []
      const touched = new Set<number>()
      for (let at = 0; at < 500; at++) {
        const chance = random.fraction()
        if (chance < shares.insert) {
          const row = { _id: next++, k: random.int(0, 999), region: random.int(0, 3) }
          operations.push({ insertOne: { document: { ...row, n: 0 } } })
          touched.add(row._id)
          live.set(row._id, row)
          writesMade += 1
          continue
        }
        const row = random.pick([...live.values()])
        // A document has one write in each round, because the writes of a round may be carried out in any order.
        if (touched.has(row._id)) continue
        touched.add(row._id)
        const filter = { ...row }
        if (chance < shares.insert + shares.delete) {
          operations.push({ deleteOne: { filter } })
          removed += 1
          live.delete(row._id)
        } else if (chance < shares.insert + shares.delete + shares.keyChange) {
          const moved = { ...row, k: (row.k + 400) % 1_000 }
          changedKeys.push(() => collection.updateOne(filter, { $set: { k: moved.k } }))
          live.set(row._id, moved)
          // The destination has the document under another key afterwards.
          removed += 1
          changed += 1
        } else operations.push({ updateOne: { filter, update: { $inc: { n: 1 } } } })
        writesMade += 1
      }
      await collection.bulkWrite(operations, { ordered: false })
      for (const change of changedKeys) await change()
    }
    await untilApplied(pair, names)
    const counts = await asked.read()
    const [updates, removals] = [
      await written.statements('things', 'update'),
      await written.statements('things', 'remove'),
    ]
    await commit(tandem)
    await pair.expectEqual()
    const total = counts.reduce((sum, { documents }) => sum + documents, 0)
    expect(total / writesMade, JSON.stringify(counts)).toBeLessThan(1.1)
    const sum = (all: number[]): number => all.reduce((one, other) => one + other, 0)
    // A changed key has two events, unless both keys are on one shard. Inserts are not counted among the statements.
    const statements = (sum(updates) + sum(removals)) / (writesMade + changed)
    expect(statements, JSON.stringify({ updates, removals })).toBeLessThan(1.1)
    expect(sum(removals) / removed, JSON.stringify(removals)).toBeLessThan(1.1)
  },
)
