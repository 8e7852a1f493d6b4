import { mkdtempSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { accepted } from '../support/commits.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { claimPorts } from '../support/free-ports.ts'
import { guardPath, removeGuardedPath } from '../support/guarded-process.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import { resolveMongod } from '../support/mongo-binaries.ts'
import { startMongod } from '../support/mongod-process.ts'
import { expectIdle, expectRefusal, footprint } from '../support/refusals.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { type CommandAnswer, startTandem } from '../support/tandem-process.ts'

/** A start that does not fit the clusters is refused with a named error and changes nothing. See test/contract.md. */

const patience = { timeout: 30_000, interval: 50 }
const start = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }
const swapped = { ...start, source: 'cluster1', destination: 'cluster0' }

const detailsOf = (cluster: string) => ({
  cluster,
  lastError: expect.stringMatching(/\S/),
  lost: 'nothing',
  docs: 'docs/troubleshooting.md#clusterunreachable',
})

describe('start', () => {
  let source: ReplicaSet
  let destination: ReplicaSet
  let sourceClient: MongoClient
  let destinationClient: MongoClient

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([borrowReplicaSet(), startReplicaSet({ proxied: true })])
    sourceClient = new MongoClient(source.uri)
    destinationClient = new MongoClient(destination.uris[0] as string)
  })

  afterAll(async () => {
    await Promise.all([sourceClient?.close(), destinationClient?.close()])
    await Promise.all([source?.stop(), destination?.stop()])
  })

  beforeEach(async () => {
    await destination.proxies[0]?.heal()
    await Promise.all([emptyCluster(sourceClient), emptyCluster(destinationClient)])
    await sourceClient.db('app').collection('things').insertOne({ a: 1 })
  })

  const startInstance = () => startTandem({ cluster0: source.uri, cluster1: destination.uri })
  const footprints = () => Promise.all([footprint(sourceClient), footprint(destinationClient)])

  interface Refusal {
    title: string
    prepare?: () => Promise<unknown>
    body?: Document
    error: string
    description: RegExp
    fix?: () => Promise<unknown>
  }

  const refusals: Refusal[] = [
    {
      title: 'a destination with user data is refused with DestinationNotEmpty',
      prepare: () => destinationClient.db('old').collection('left over').insertOne({}),
      error: 'DestinationNotEmpty',
      description: /old\.left over.*drop/,
      fix: () => destinationClient.db('old').dropDatabase(),
    },
    {
      title: 'a destination with only a view is refused with DestinationNotEmpty',
      prepare: () => destinationClient.db('old').createCollection('view', { viewOn: 'nothing', pipeline: [] }),
      error: 'DestinationNotEmpty',
      description: /old\.view/,
      fix: () => destinationClient.db('old').dropDatabase(),
    },
    {
      title: 'a time-series collection on the source is refused with UnsupportedCollection',
      prepare: () => sourceClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } }),
      error: 'UnsupportedCollection',
      description: /app\.weather.*time-series.*Drop/,
      fix: () => sourceClient.db('app').dropCollection('weather'),
    },
    {
      title: 'sharding between replica sets is refused with ShardingNotAllowed',
      body: { ...start, sharding: { shardingEntries: [] } },
      error: 'ShardingNotAllowed',
      description: /sharding.*leave it out/,
    },
    {
      title:
        'buildIndexes never with the verifier (on by default) and a TTL index is refused with VerificationNotSupported',
      prepare: () => sourceClient.db('app').collection('things').createIndex({ at: 1 }, { expireAfterSeconds: 60 }),
      body: { source: 'cluster0', destination: 'cluster1', buildIndexes: 'never' },
      error: 'VerificationNotSupported',
      description: /app\.things.*TTL.*"verification": \{"enabled": false\}/,
    },
    {
      title: 'buildIndexes never with reversible is refused with ReversibleNotSupported',
      body: { ...start, buildIndexes: 'never', reversible: true, enableUserWriteBlocking: 'sourceAndDestination' },
      error: 'ReversibleNotSupported',
      description: /never/,
    },
  ]

  it.each(refusals.map((refusal) => [refusal.title, refusal] as const))(
    'README: %s, leaves both clusters untouched, and succeeds when the cause is fixed',
    async (_title, refusal) => {
      const { prepare, body = start, error, description, fix } = refusal
      await prepare?.()
      await using tandem = await startInstance()
      await vi.waitFor(() => expectIdle(tandem), patience)
      const before = await footprints()
      expectRefusal(await tandem.post('start', body), 422, error, description)
      await expectIdle(tandem)
      expect(await footprints()).toEqual(before)
      // A second start is refused in the same way.
      expectRefusal(await tandem.post('start', body), 422, error, description)
      await fix?.()
      expect(await tandem.post('start', start)).toMatchObject(accepted)
      await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    },
  )

  it('2.1: unknown cluster names, and one cluster as source and destination, are refused with InvalidRequest', async () => {
    await using tandem = await startInstance()
    await vi.waitFor(() => expectIdle(tandem), patience)
    const before = await footprints()
    expectRefusal(await tandem.post('start', { ...start, source: 'cluster2' }), 400, 'InvalidRequest', /^source: /)
    expectRefusal(await tandem.post('start', { ...start, destination: 'other' }), 400, 'InvalidRequest', /^destination/)
    expectRefusal(await tandem.post('start', { ...start, source: 'cluster1' }), 400, 'InvalidRequest', /differ/)
    await expectIdle(tandem)
    expect(await footprints()).toEqual(before)
  })

  it('README: the same cluster under another host name is refused with UnsupportedTopology', async () => {
    const byName = `mongodb://${source.hosts[0]?.replace('127.0.0.1', 'localhost')}/?directConnection=true`
    await using tandem = await startTandem({ cluster0: source.uri, cluster1: byName })
    await vi.waitFor(() => expectIdle(tandem), patience)
    const before = await footprint(sourceClient)
    expectRefusal(await tandem.post('start', start), 422, 'UnsupportedTopology', /same/)
    expect(await footprint(sourceClient)).toEqual(before)
  })

  it('README: a standalone is refused with UnsupportedTopology, as source and as destination', async () => {
    const claimed = await claimPorts(1)
    const port = claimed.ports[0] as number
    const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-standalone-'))
    guardPath(folder)
    const server = await startMongod({ port, folder, args: ['--wiredTigerCacheSizeGB', '0.25'] })
    try {
      const uri = `mongodb://127.0.0.1:${port}`
      await using standalone = new MongoClient(uri)
      await using tandem = await startTandem({ cluster0: uri, cluster1: source.uri })
      await vi.waitFor(() => expectIdle(tandem), patience)
      const before = [await footprint(standalone), await footprint(sourceClient)]
      expectRefusal(await tandem.post('start', start), 422, 'UnsupportedTopology', /source.*standalone/)
      expectRefusal(await tandem.post('start', swapped), 422, 'UnsupportedTopology', /destination.*standalone/)
      await expectIdle(tandem)
      expect([await footprint(standalone), await footprint(sourceClient)]).toEqual(before)
    } finally {
      await server.kill()
      removeGuardedPath(folder)
      claimed.release()
    }
  })

  it('2.1: with a source older than 6.0 any enableUserWriteBlocking, and reversible, are refused with a named error', async ({
    skip,
  }) => {
    await resolveMongod({ version: '5.0' }).catch((error: Error) => skip(error.message))
    await using old = await startReplicaSet({ version: '5.0' })
    await using oldClient = new MongoClient(old.uri)
    await oldClient.db('app').collection('things').insertOne({ a: 1 })
    await sourceClient.db('app').dropDatabase()
    await using tandem = await startTandem({ cluster0: old.uri, cluster1: source.uri })
    await vi.waitFor(() => expectIdle(tandem), patience)
    const before = [await footprint(oldClient), await footprint(sourceClient)]
    for (const enableUserWriteBlocking of ['sourceAndDestination', 'destinationOnly', 'none', true, false]) {
      const answer = await tandem.post('start', { ...start, enableUserWriteBlocking })
      expectRefusal(answer, 422, 'WriteBlockingNotSupported', /6\.0.*leave it out/)
    }
    expectRefusal(
      await tandem.post('start', { ...start, reversible: true }),
      422,
      'ReversibleNotSupported',
      /source older than 6\.0/,
    )
    // The destination must not be older than the source.
    await oldClient.db('app').dropDatabase()
    expectRefusal(await tandem.post('start', swapped), 422, 'UnsupportedVersion', /destination.*5\.0\..*6\.0/)
    await oldClient.db('app').collection('things').insertOne({ a: 1 })
    await expectIdle(tandem)
    expect([await footprint(oldClient), await footprint(sourceClient)]).toEqual(before)
  })

  it('README: start is refused with ClusterUnreachable while a cluster does not answer yet, and succeeds once it does', async () => {
    await destination.proxies[0]?.cut()
    await using tandem = await startInstance()
    const response = await fetch(`${tandem.url}/api/v1/progress`)
    const body = (await response.json()) as CommandAnswer['body']
    // The driver may still wait for the first answer.
    const waiting = /just started|first answer of cluster[01]|cluster[01] does not answer/
    expectRefusal({ status: response.status, body }, 503, 'ClusterUnreachable', waiting)
    const before = await footprints()
    const refused = await tandem.post('start', start)
    expectRefusal(refused, 503, 'ClusterUnreachable', /cluster1 does not answer \(.+\)/)
    expect(refused.body).toMatchObject(detailsOf('cluster1'))
    expect(await footprints()).toEqual(before)
    await destination.proxies[0]?.heal()
    await vi.waitFor(() => expectIdle(tandem), patience)
    expect(await tandem.post('start', start)).toMatchObject(accepted)
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  })

  it('README: start with an unreachable cluster is refused with ClusterUnreachable and may be sent again', async () => {
    await using tandem = await startInstance()
    await vi.waitFor(() => expectIdle(tandem), patience)
    const before = await footprints()
    await destination.proxies[0]?.cut()
    const refused = await tandem.post('start', start)
    expectRefusal(refused, 503, 'ClusterUnreachable', /cluster1 does not answer \(.+\)/)
    expect(refused.body).toMatchObject(detailsOf('cluster1'))
    await expectIdle(tandem)
    expect(await footprints()).toEqual(before)
    await destination.proxies[0]?.heal()
    await vi.waitFor(async () => expect(await tandem.post('start', start)).toMatchObject(accepted), patience)
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  })
})
