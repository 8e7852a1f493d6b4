import { beforeEach, expect, it } from 'vitest'
import { chunkMapOf } from '../../src/documents/source-chunks.ts'
import type { Journal } from '../../src/domain/journal.ts'
import { oneSet } from '../mongo/one-set.ts'
import { failPoint } from '../support/fail-point.ts'
import { until } from '../support/until.ts'

/** If the chunks of the source cannot be read, tandem reads documents from every shard, and logs that. */

const one = oneSet()
const logged: [string, unknown][] = []
const journal: Journal = (message, fields) => void logged.push([message, fields])
beforeEach(() => void logged.splice(0))

it('the log says what tandem uses if a read of the chunks fails', async () => {
  // The test reads from a replica set, whose `config` database has no chunks.
  one.cluster.sharded = true
  const refused = { failCommands: ['find'], namespace: 'config.collections', errorCode: 13, appName: 'tandem-test' }
  await using _ = await failPoint(one.client, 'failCommand', refused)
  const collection = { database: 'app', sourceName: 'things', uuid: Buffer.alloc(16, 1).toString('latin1') }
  expect(chunkMapOf(one.cluster, collection, journal)).toBeNull()
  await until('the log line', async () => expect(logged).toHaveLength(1))
  expect(logged).toEqual([
    [
      'chunks not read',
      {
        namespace: 'app.things',
        error: expect.stringContaining('Failing command'),
        instead: expect.stringMatching(/every shard/),
      },
    ],
  ])
})
