import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { accepted } from '../support/commits.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { expectIdle, expectRefusal, footprint } from '../support/refusals.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { startTandem } from '../support/tandem-process.ts'

/** The privileges that database users need, and the secrecy of passwords and documents. See test/contract.md. */

const patience = { timeout: 30_000, interval: 50 }
const start = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }

describe('users', () => {
  const commandTimeoutMs = 20_000
  let source: ReplicaSet
  let destination: ReplicaSet
  let sourceClient: MongoClient
  let destinationClient: MongoClient

  beforeAll(async () => {
    ;[source, destination] = await Promise.all([startReplicaSet({ auth: true }), startReplicaSet({ auth: true })])
    sourceClient = new MongoClient(source.uri)
    destinationClient = new MongoClient(destination.uri)
  })

  afterAll(async () => {
    await Promise.all([sourceClient?.close(), destinationClient?.close()])
    await Promise.all([source?.stop(), destination?.stop()])
  })

  beforeEach(async () => {
    await Promise.all([emptyCluster(sourceClient), emptyCluster(destinationClient)])
    await sourceClient.db('app').collection('things').insertOne({ a: 1 })
  })

  const footprints = () => Promise.all([footprint(sourceClient), footprint(destinationClient)])

  it('5.4: a wrong password is reported at once, on progress and by every command, and is not disclosed', async () => {
    const wrong = new URL(source.uri)
    wrong.password = 'mistyped-horse'
    await using tandem = await startTandem({ cluster0: wrong.href, cluster1: destination.uri })
    const failed = { state: 'FAILED', failure: { error: 'AuthenticationFailed' } }
    await vi.waitFor(async () => expect(await tandem.progress()).toMatchObject(failed), patience)
    for (const command of ['start', 'resume']) {
      const answer = await tandem.post(command, command === 'start' ? start : {})
      expectRefusal(answer, 422, 'AuthenticationFailed', /connecting to cluster0.*user name or password/)
    }
    expect(JSON.stringify(await tandem.progress())).not.toContain('mistyped-horse')
  })

  const lacking: [what: string, side: 'source' | 'destination', roles: (string | Document)[]][] = [
    ['may do nothing on the source', 'source', []],
    ['may read only one database of the source', 'source', ['clusterMonitor', { role: 'read', db: 'app' }]],
    ['may not append to the oplog of the source', 'source', ['clusterMonitor', 'readAnyDatabase']],
    ['may do nothing on the destination', 'destination', []],
    ['may only read on the destination', 'destination', ['clusterMonitor', 'readAnyDatabase']],
    ['may not pass write blocking on the destination', 'destination', ['clusterMonitor', 'readWriteAnyDatabase']],
  ]

  it.each(lacking)(
    '5.4: start by a user who %s is refused with MissingPrivileges, and succeeds when granted',
    async (what, side, roles) => {
      const set = side === 'source' ? source : destination
      const uri = await set.createUser(what, 'secret', roles)
      await using tandem = await startTandem({
        cluster0: side === 'source' ? uri : source.uri,
        cluster1: side === 'destination' ? uri : destination.uri,
      })
      const before = await footprints()
      const answer = await within(commandTimeoutMs, tandem.post('start', start))
      expectRefusal(answer, 422, 'MissingPrivileges', /privilege|authorized/)
      await expectIdle(tandem)
      expect(await footprints()).toEqual(before)

      const administrator = side === 'source' ? sourceClient : destinationClient
      await administrator.db('admin').command({ grantRolesToUser: what, roles: ['root'] })
      expect(await within(commandTimeoutMs, tandem.post('start', start))).toMatchObject(accepted)
      await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    },
  )

  it('5.3: no answer, log line or output holds a password or a document', async () => {
    const name = 'canary-user'
    const password = 'canary:p@ss/w%rd'
    const document = { _id: 'canary-id', text: 'canary-text' } as Document
    const uris = {
      cluster0: await source.createUser(name, password, ['root']),
      cluster1: await destination.createUser(name, password, ['root']),
    }
    await sourceClient.db('app').collection('things').insertOne(document)
    const recorded: string[] = []
    await using tandem = await startTandem(uris)
    const request = async (method: 'GET' | 'POST', where: string, body?: string) => {
      const response = await fetch(`${tandem.url}${where}`, { method, ...(body === undefined ? {} : { body }) })
      const headers = JSON.stringify([...response.headers])
      recorded.push(`${method} ${where} ${body ?? ''} → ${response.status} ${headers} ${await response.text()}`)
    }
    const requestAll = async () => {
      for (const where of ['/api/v1/progress', '/openapi.json', '/healthz', '/', '/api/v1/nothing']) {
        await request('GET', where)
      }
      for (const command of ['start', 'pause', 'resume', 'commit', 'reverse', 'nothing']) {
        await request('POST', `/api/v1/${command}`, '{"nonsense":')
        await request('POST', `/api/v1/${command}`, '{"unknown":1}')
      }
      recorded.push(tandem.output())
    }

    await vi.waitFor(() => expectIdle(tandem), patience)
    await requestAll()
    await destinationClient.db('app').collection('things').insertOne(document)
    await request('POST', '/api/v1/start', JSON.stringify(start))
    await destinationClient.db('app').dropDatabase()
    await request('POST', '/api/v1/start', JSON.stringify(start))
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    await requestAll()
    // The following errors of the server, after an election and for a lost oplog, may contain values of documents.
    await destination.stepDown()
    await sourceClient
      .db('app')
      .collection<{ _id: string; text: string }>('things')
      .insertOne({ _id: 'canary-id 2', text: 'canary-text' })
    await tandem.waitFor(({ lagTimeSeconds }) => lagTimeSeconds === 0, { timeoutSeconds: 30, what: 'caught up' })
    const getMore = { configureFailPoint: 'failCommand', data: { failCommands: ['getMore'], errorCode: 286 } }
    await sourceClient.db('admin').command({ ...getMore, mode: 'alwaysOn' })
    await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
    await requestAll()
    await sourceClient.db('admin').command({ ...getMore, mode: 'off' })
    await tandem.post('resume')
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
    await tandem.post('commit')
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
    await requestAll()
    await tandem.stop()
    recorded.push(tandem.output())

    const wrong = uris.cluster0.replace(encodeURIComponent(password), encodeURIComponent(`wrong ${password}`))
    await using refused = await startTandem({ ...uris, cluster0: wrong })
    await vi.waitFor(() => expect(refused.output()).toMatch(/[Aa]uthentication failed/), patience)
    for (const where of ['progress', 'start']) {
      const response = await fetch(`${refused.url}/api/v1/${where}`, {
        method: where === 'start' ? 'POST' : 'GET',
        ...(where === 'start' ? { body: JSON.stringify(start) } : {}),
      })
      recorded.push(await response.text())
    }
    recorded.push(refused.output())

    // The recording contains the expected answers.
    expect(recorded.join('\n')).toMatch(/"state":"COMMITTED"/)
    expect(recorded.join('\n')).toMatch(/OplogWindowLost/)
    expect(recorded.join('\n')).toMatch(/DestinationNotEmpty/)
    for (const text of recorded) expect(text).not.toMatch(/canary/i)
    for (const part of [password, encodeURIComponent(password), 'p@ss', 'w%rd']) {
      expect(recorded.filter((text) => text.includes(part))).toEqual([])
    }
  })

  async function within<T>(milliseconds: number, answer: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer in ${milliseconds / 1000} s`)), milliseconds)
    })
    try {
      return await Promise.race([answer, late])
    } finally {
      clearTimeout(timer)
    }
  }
})
