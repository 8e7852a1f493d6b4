import type { Document } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { parseStartBody } from '../../src/api/start-body.ts'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkClocks } from '../../src/checks/clocks.ts'
import { checkDisk } from '../../src/checks/disk.ts'
import { checkIndexLimit } from '../../src/checks/index-limit.ts'
import { checkOplogWindow } from '../../src/checks/oplog-window.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { findEverything } from '../../src/session/start-checks.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()

type Changes = Record<string, (reply: Document) => Document>

/** Returns a cluster that answers with the replies of a real server, except that the test changes replies to the named commands. */
function withReplies(changes: Changes): Cluster {
  const read: Cluster['read'] = async (database, sent, ...options) => {
    const reply = await one.cluster.read(database, sent, ...options)
    const changed = Object.keys(changes).find((command) => command in sent)
    return changed ? (changes[changed] as Changes[string])(reply) : reply
  }
  return new Proxy(one.cluster, {
    get: (target, name) => {
      if (name === 'read') return read
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

const isFull = (reply: Document): Document => ({ ...reply, fsUsedSize: reply['fsTotalSize'] })

async function clusters(
  changed: Partial<Pick<CheckedClusters, 'source' | 'destination'>>,
  start: Partial<StartConfiguration> = {},
): Promise<CheckedClusters> {
  const facts = await readFacts(one.cluster)
  const configuration = { sharding: null, ...start } as StartConfiguration
  return {
    configuration,
    source: one.cluster,
    destination: one.cluster,
    facts: { source: facts, destination: facts },
    selection: new Selection(one.cluster, configuration),
    ...changed,
  }
}

describe('checks of disk space, clocks and index limit', () => {
  beforeAll(async () => {
    await one.client.db('app').collection('things').insertOne({})
  })

  it('warn of little disk space, unless the destination does not report its disk space', async () => {
    const full = withReplies({ dbStats: isFull })
    expect(await checkDisk(await clusters({}))).toEqual([])
    expect(await checkDisk(await clusters({ destination: full }))).toMatchObject([
      { severity: 'warning', name: 'LittleDiskSpace', message: expect.stringMatching(/0\.0 GB left/) },
    ])
    const excludeNamespaces = [{ database: 'app' }]
    expect(await checkDisk(await clusters({ destination: full }, { excludeNamespaces }))).toEqual([])
    const silent = withReplies({ dbStats: ({ fsTotalSize: _, ...reply }) => reply })
    expect(await checkDisk(await clusters({ destination: silent }))).toEqual([])
  })

  it('do not warn of little disk space when the request skips this check', async () => {
    const full = withReplies({ dbStats: isFull })
    const configuration = parseStartBody({ source: 'cluster0', destination: 'cluster1' })
    const namesOf = async (skipDiskSpaceCheck: boolean): Promise<string[]> =>
      (await findEverything(configuration, one.cluster, full, { skipDiskSpaceCheck })).map(({ name }) => name)
    const all = await namesOf(false)
    expect(all).toContain('LittleDiskSpace')
    expect(await namesOf(true)).toEqual(all.filter((name) => name !== 'LittleDiskSpace'))
  })

  it('with existingData "converge", count only the data that has to be added on the destination', async () => {
    const converge = { existingData: 'converge' } as const
    const full = withReplies({ dbStats: isFull })
    expect(await checkDisk(await clusters({ destination: full }, converge))).toEqual([])
    // The destination has the collection, and the collection is empty.
    const aggregate = (reply: Document): Document => ({ ...reply, cursor: { ...reply['cursor'], firstBatch: [] } })
    const empty = withReplies({ dbStats: isFull, aggregate })
    expect(await checkDisk(await clusters({ destination: empty }, converge))).toMatchObject([
      {
        severity: 'warning',
        name: 'LittleDiskSpace',
        message: expect.stringMatching(/more on disk than the collections/),
      },
    ])
    // A convergence drops a capped collection and copies it again.
    await one.client.db('app').createCollection('capped', { capped: true, size: 100_000 })
    // The sizes of files change only at a checkpoint.
    await one.client.db('admin').command({ fsync: 1 })
    expect(await checkDisk(await clusters({ destination: full }, converge))).toHaveLength(1)
    await one.client.db('app').dropCollection('capped')
  })

  it('warn of a short oplog window with the reason for which it is too short', async () => {
    const full = (reply: Document): Document => ({
      ...reply,
      cursor: { ...reply['cursor'], firstBatch: [{ size: 1, maxSize: 1 }] },
    })
    const small = withReplies({ aggregate: full })
    expect(await checkOplogWindow(await clusters({ source: small }))).toMatchObject([
      {
        name: 'ShortOplogWindow',
        message: expect.stringMatching(/rate; at least 1\.0 hour is recommended for any sync$/),
      },
    ])
    const large = withReplies({ aggregate: full, dbStats: (reply) => ({ ...reply, dataSize: 1e12 }) })
    expect(await checkOplogWindow(await clusters({ source: large }))).toMatchObject([
      { name: 'ShortOplogWindow', message: expect.stringMatching(/rate; a copy of this size needs \d+\.\d hours$/) },
    ])
  })

  it('warn of clocks that differ by more than two seconds', async () => {
    const late = withReplies({ hello: (reply) => ({ ...reply, localTime: new Date(Date.now() - 60_000) }) })
    expect(await checkClocks(await clusters({}))).toEqual([])
    expect(await checkClocks(await clusters({ source: late }))).toMatchObject([
      { severity: 'warning', name: 'ClockSkew', message: expect.stringMatching(/differ by (59\.9|60\.\d) seconds/) },
    ])
  })

  it('report a collection that has no room for the index that its shard key needs', async () => {
    const things = one.client.db('app').collection('things')
    const sharding = {
      createSupportingIndexes: true,
      shardingEntries: [{ database: 'app', collection: 'things', shardCollection: { key: [{ k: 1 }] } }],
    }
    await things.createIndexes(Array.from({ length: 62 }, (_, at) => ({ key: { [`f${at}`]: 1 } })))
    expect(await checkIndexLimit(await clusters({}, { sharding }))).toEqual([])
    await things.createIndex({ last: 1 })
    expect(await checkIndexLimit(await clusters({}, { sharding }))).toMatchObject([
      {
        severity: 'error',
        name: 'UnsupportedCollection',
        namespace: 'app.things',
        message: expect.stringMatching(/64/),
      },
    ])
    // The _id index, which the indexes created above do not include, supports this key.
    const onId = [{ database: 'app', collection: 'things', shardCollection: { key: [{ _id: 1 }] } }]
    const byId = { createSupportingIndexes: true, shardingEntries: onId }
    expect(await checkIndexLimit(await clusters({}, { sharding: byId }))).toEqual([])
    const excludeNamespaces = [{ database: 'app', collections: ['things'] }]
    expect(await checkIndexLimit(await clusters({}, { sharding, excludeNamespaces }))).toEqual([])
    await things.dropIndex('last_1')
    await things.createIndex({ k: 1 })
    expect(await checkIndexLimit(await clusters({}, { sharding }))).toEqual([])
  })
})
