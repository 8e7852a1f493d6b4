import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import type { MongoClient } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { checkUri } from '../../src/domain/uri-rules.ts'
import { accepted, canCommit, committed, failed } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'
import { patience } from '../support/reversible-pair.ts'
import type { Row } from '../support/rows.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'
import { type Canary, canary, formsIn } from './canary.ts'

/** README: tandem shows no credentials, and no value of a document except `_id`. The tests search all output of a real process. */

const pair = pairedSets({ source: { auth: true }, destination: { auth: true } })
const endpoints = [
  ...['progress', 'instances', 'limits', 'verification/mismatches', 'audit'].map((name) => `api/v1/${name}`),
  ...['metrics', 'healthz', 'openapi.json', 'nowhere'],
]

interface Secrets {
  user: Canary
  password: Canary
  option: Canary
  value: Canary
}
/** User names that the server and the driver accept. The server treats a user name as part of a namespace; the driver cannot encode every name. */
const user = canary
  .map(({ text, core }): Canary => ({ text: `u${text.replaceAll('$', '')}`, core }))
  .filter(({ text }) => checkUri('cluster0', `mongodb://${encodeURIComponent(text)}@host/`).length === 0)
const secrets = fc.record({ user, password: canary, option: canary, value: canary })
const listed = (all: Secrets): Canary[] => [all.user, all.password, all.option, all.value]
let runs = 0

/** Starts an instance and keeps all its answers, log lines (of all levels) and other output. */
async function listening(all: Secrets, cluster0: string, cluster1: string) {
  runs += 1
  const folder = path.join(pair.source.folder, `log ${runs}`)
  const tandem = await startTandem({ cluster0, cluster1, extraArgs: ['--logPath', folder, '--verbosity', 'TRACE'] })
  const answers: string[] = []
  const post = async (command: string, body?: unknown) => {
    const answer = await tandem.post(command, body)
    answers.push(JSON.stringify(answer))
    return answer
  }
  return {
    tandem,
    post,
    async askEverything(): Promise<void> {
      const ask = async (endpoint: string) => (await fetch(`${tandem.url}/${endpoint}`)).text()
      answers.push(...(await Promise.all(endpoints.map(ask))))
    },
    async expectDiscreet(): Promise<void> {
      await tandem.stop()
      const logs = readdirSync(folder).map((name) => readFileSync(path.join(folder, name), 'utf8'))
      expect(logs.join('')).toContain('"message":"stopping"')
      for (const text of [...answers, ...logs, tandem.output()]) {
        const found = formsIn(text, listed(all))
        expect(found, found.length > 0 ? text : '').toEqual([])
      }
    },
  }
}

async function uriFor(set: ReplicaSet, client: MongoClient, { user, password, option }: Secrets): Promise<string> {
  await client.db('admin').command({ createUser: user.text, pwd: password.text, roles: ['root'] })
  const credentials = `${encodeURIComponent(user.text)}:${encodeURIComponent(password.text)}`
  return `mongodb://${credentials}@${set.hosts.join(',')}/?replicaSet=${set.name}&appName=${encodeURIComponent(option.text)}`
}

async function connected(all: Secrets) {
  const cluster0 = await uriFor(pair.source, pair.sourceClient, all)
  const cluster1 = await uriFor(pair.destination, pair.destinationClient, all)
  const listener = await listening(all, cluster0, cluster1)
  await vi.waitFor(() => listener.tandem.progress(), patience)
  return { ...listener, cluster0, cluster1 }
}

const documents = ({ value }: Secrets): Row[] =>
  Array.from({ length: 20 }, (_, _id) => ({
    _id,
    u: `${value.text} ${_id}`,
    deep: { in: [value.text, Buffer.from(value.text)], like: new RegExp(value.core) },
  }))
const things = (client: MongoClient) => client.db('app').collection<Row>('things')

it('README: neither credentials nor values are shown by a sync that fails its verification and is repaired', async () => {
  const property = fc.asyncProperty(secrets, async (all) => {
    const { tandem, post, askEverything, expectDiscreet } = await connected(all)
    await things(pair.sourceClient).insertMany(documents(all))
    await post('start', { source: all.value.text, password: all.password.text })
    await askEverything()
    await startSync(tandem, { enableUserWriteBlocking: 'none' })
    await canCommit(tandem)
    await things(pair.sourceClient).updateMany({}, { $set: { later: all.value.text } })
    // The document does not exist on the source. If it did, its next change on the source would remove the difference.
    await things(pair.destinationClient).insertOne({ _id: 1_000, foreign: all.value.text })
    await askEverything()
    await post('commit')
    expect((await failed(tandem)).failure?.error).toBe('VerificationFailed')
    await askEverything()
    expect(await post('repair')).toMatchObject({ status: 200 })
    expect(await post('resume')).toEqual(accepted)
    await committed(tandem)
    await askEverything()
    await expectDiscreet()
    await Promise.all([pair.sourceClient, pair.destinationClient].map((client) => client.db('app').dropDatabase()))
    await Promise.all(
      [pair.sourceClient, pair.destinationClient].map((client) => client.db(metadataDatabase).dropDatabase()),
    )
  })
  await fc.assert(property, { numRuns: 2, endOnFailure: true })
})

it('README: neither credentials nor values are shown by a sync that fails on a document of the destination', async () => {
  const [all] = fc.sample(secrets, 1) as [Secrets]
  const { tandem, post, askEverything, expectDiscreet } = await connected(all)
  await things(pair.sourceClient).insertMany(documents(all))
  await things(pair.sourceClient).createIndex({ u: 1 }, { unique: true })
  await startSync(tandem, { enableUserWriteBlocking: 'none', verification: { enabled: false } })
  await canCommit(tandem)
  await things(pair.destinationClient).insertOne({ _id: 1_000, u: `${all.value.text} 3` })
  await post('commit')
  expect((await failed(tandem)).failure?.error).toBe('DuplicateKey')
  await askEverything()
  await expectDiscreet()
})

it('README: neither credentials nor values are shown by a sync whose user loses its privileges', async () => {
  const [all] = fc.sample(secrets, 1) as [Secrets]
  const { tandem, askEverything, expectDiscreet } = await connected(all)
  await things(pair.sourceClient).insertMany(documents(all))
  await startSync(tandem, { enableUserWriteBlocking: 'none' })
  await canCommit(tandem)
  const roles = ['readAnyDatabase', 'clusterMonitor', { role: 'readWrite', db: metadataDatabase }]
  await pair.destinationClient.db('admin').command({ updateUser: all.user.text, roles })
  await things(pair.sourceClient).updateMany({}, { $set: { later: all.value.text } })
  expect((await failed(tandem)).failure?.error).toBe('MissingPrivileges')
  await askEverything()
  await expectDiscreet()
})

const mistakes: ((uri: string) => string)[] = [
  (uri) => uri.replace('@', 'x@'), // a wrong password
  (uri) => uri.replace(/@[^/]+/, '@127.0.0.1:1'), // no process listens
  (uri) => uri.replace(/@[^/]+/, '@nowhere.invalid'), // the name does not exist
  (uri) => `${uri}&tls=true&tlsCAFile=/nowhere`, // the file does not exist
]

it('README: neither credentials nor values are shown by connections that fail', async () => {
  const fail = async (breakUri: (uri: string) => string): Promise<void> => {
    const [all] = fc.sample(secrets, 1) as [Secrets]
    const good = await uriFor(pair.source, pair.sourceClient, all)
    const { post, askEverything, expectDiscreet } = await listening(all, breakUri(good), breakUri(good))
    const start = post('start', { source: 'cluster0', destination: 'cluster1' })
    await askEverything()
    expect((await start).status).toBeGreaterThanOrEqual(409)
    await expectDiscreet()
  }
  await Promise.all(mistakes.map(fail))
})
