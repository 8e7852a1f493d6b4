import { beforeAll, describe, expect, it } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkClocks } from '../../src/checks/clocks.ts'
import { checkDisk } from '../../src/checks/disk.ts'
import { checkIndexLimit } from '../../src/checks/index-limit.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()

/** The server's own answers, but for what a test changes in one of them. */
const answering = (command: string, change: (reply: Record<string, unknown>) => Record<string, unknown>): Cluster =>
  ({
    read: async (database: string, sent: Record<string, unknown>) => {
      const reply = await one.cluster.read(database, sent)
      return command in sent ? change(reply) : reply
    },
  }) as unknown as Cluster

async function clusters(
  changed: Partial<Pick<CheckedClusters, 'source' | 'destination'>>,
  sharding: StartConfiguration['sharding'] = null,
): Promise<CheckedClusters> {
  const facts = await readFacts(one.cluster)
  const configuration = { sharding } as StartConfiguration
  return {
    configuration,
    source: one.cluster,
    destination: one.cluster,
    facts: { source: facts, destination: facts },
    selection: new Selection(one.cluster, configuration),
    ...changed,
  }
}

describe('checks that advise', () => {
  beforeAll(async () => {
    await one.client.db('app').collection('things').insertOne({})
  })

  it('warn of little space on the disk, and of none when the destination does not tell', async () => {
    const full = answering('dbStats', (reply) => ({ ...reply, fsUsedSize: reply['fsTotalSize'] }))
    expect(await checkDisk(await clusters({}))).toEqual([])
    expect(await checkDisk(await clusters({ destination: full }))).toMatchObject([
      { severity: 'warning', name: 'LittleDiskSpace', message: expect.stringMatching(/0\.0 GB left/) },
    ])
    const mute = answering('dbStats', ({ fsTotalSize: _, ...reply }) => reply)
    expect(await checkDisk(await clusters({ destination: mute }))).toEqual([])
  })

  it('warn of clocks that differ by more than two seconds', async () => {
    const late = answering('hello', (reply) => ({ ...reply, localTime: new Date(Date.now() - 60_000) }))
    expect(await checkClocks(await clusters({}))).toEqual([])
    expect(await checkClocks(await clusters({ source: late }))).toMatchObject([
      { severity: 'warning', name: 'ClockSkew', message: expect.stringMatching(/differ by (59\.9|60\.\d) seconds/) },
    ])
  })

  it('name a collection that cannot take another index, for its shard key', async () => {
    const things = one.client.db('app').collection('things')
    const sharding = {
      createSupportingIndexes: true,
      shardingEntries: [{ database: 'app', collection: 'things', shardCollection: { key: [{ k: 1 }] } }],
    }
    await things.createIndexes(Array.from({ length: 62 }, (_, at) => ({ key: { [`f${at}`]: 1 } })))
    expect(await checkIndexLimit(await clusters({}, sharding))).toEqual([])
    await things.createIndex({ last: 1 })
    expect(await checkIndexLimit(await clusters({}, sharding))).toMatchObject([
      {
        severity: 'error',
        name: 'UnsupportedCollection',
        namespace: 'app.things',
        message: expect.stringMatching(/64/),
      },
    ])
    await things.dropIndex('last_1')
    await things.createIndex({ k: 1 })
    expect(await checkIndexLimit(await clusters({}, sharding))).toEqual([])
  })
})
