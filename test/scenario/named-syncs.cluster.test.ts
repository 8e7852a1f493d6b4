import { MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { CleanedPair } from '../clean/cleaned-pair.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { databaseNames } from '../support/databases.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import { startTandem, type Tandem } from '../support/tandem-process.ts'

/** Several named syncs write to one destination. */

const pair = new CleanedPair()
const { sets } = pair
const metadata = 'mongosync_internal_tandem'

const named = (syncName: string): Promise<Tandem> => sets.startInstance({ extraArgs: ['--syncName', syncName] })
const of = (...databases: string[]) => ({
  source: 'cluster0',
  destination: 'cluster1',
  includeNamespaces: databases.map((database) => ({ database })),
  enableUserWriteBlocking: 'none',
})
const rows = (client: MongoClient, database: string) => client.db(database).collection<{ _id: number }>('things')
const fill = async (...databases: string[]): Promise<void> => {
  for (const database of databases) await rows(sets.sourceClient, database).insertMany([{ _id: 1 }, { _id: 2 }])
}
const record = (database: string) =>
  sets.destinationClient
    .db(database)
    .collection('sync')
    .findOne({ supersededBy: { $exists: false } })
const metadataNames = async () =>
  (await databaseNames(sets.destinationClient)).filter((name) => name.startsWith(metadata)).sort()

it('run, restart, commit and are cleaned independently of each other', async () => {
  await fill('app', 'shop', 'blog')
  await using one = await named('one')
  expect(await one.post('start', of('app'))).toMatchObject(accepted)
  await canCommit(one)
  await using unnamed = await sets.startInstance()
  expect(await unnamed.post('start', of('blog'))).toMatchObject(accepted)
  {
    await using two = await named('Two_2')
    expect(await two.post('start', of('shop'))).toMatchObject(accepted)
    await canCommit(two)
    await two.kill9()
  }
  expect(await metadataNames()).toEqual([metadata, `${metadata}_Two_2`, `${metadata}_one`])
  for (const database of ['app', 'shop', 'blog']) await rows(sets.sourceClient, database).insertOne({ _id: 3 })
  await commit(one)
  // Users write on the destination after the commit of `one`.
  await rows(sets.destinationClient, 'app').insertOne({ _id: 4 })
  await using two = await named('Two_2')
  expect((await canCommit(two)).state).toBe('RUNNING')
  await one.stop()
  expect(await pair.clean({ syncName: 'one', yes: true })).toMatchObject({
    code: 0,
    lines: ['sync: cluster0 -> cluster1, committed', `drop: database ${metadata}_one on cluster1`, expect.any(String)],
  })
  expect(await metadataNames()).toEqual([metadata, `${metadata}_Two_2`])
  await commit(two)
  await commit(unnamed)
  expect(await rows(sets.destinationClient, 'app').countDocuments()).toBe(4)
  await rows(sets.sourceClient, 'app').insertOne({ _id: 4 })
  expect((await compareBoth(sets.source.uri, sets.destination.uri)).differences).toEqual([])
})

it('are refused if their filters overlap, if one blocks writes, or if their names differ only in case; a refusal changes nothing', async () => {
  await fill('app', 'shop')
  await using one = await named('one')
  expect(await one.post('start', of('app'))).toMatchObject(accepted)
  await canCommit(one)
  await using two = await named('two')
  await using capital = await named('ONE')
  await using unnamed = await sets.startInstance()
  const before = await record(`${metadata}_one`)
  const refusal = async (tandem: Tandem, command: string, body: object) => {
    const { status, body: answer } = await tandem.post(command, body)
    return [status, answer.error, answer.errorDescription]
  }
  const overlaps = [422, 'SyncsOverlap', expect.stringMatching(/^the sync "one" .* both select app\.\*;/)]
  expect(await refusal(two, 'start', of('shop', 'app'))).toEqual(overlaps)
  const { includeNamespaces: _, ...unfiltered } = of()
  expect(await refusal(unnamed, 'start', unfiltered)).toEqual(overlaps)
  expect((await two.post('check', of('app'))).body).toMatchObject({
    findings: expect.arrayContaining([expect.objectContaining({ name: 'SyncsOverlap' })]),
  })
  const blocking = { ...of('shop'), enableUserWriteBlocking: 'destinationOnly' }
  expect(await refusal(two, 'start', blocking)).toEqual([
    422,
    'WriteBlockingNotSupported',
    expect.stringContaining('the sync "one"'),
  ])
  expect(await refusal(capital, 'start', of('shop'))).toEqual([
    422,
    'ConfigurationMismatch',
    expect.stringContaining('upper and lower case'),
  ])
  expect(await metadataNames()).toEqual([`${metadata}_one`])
  expect(await two.post('start', of('shop'))).toMatchObject(accepted)
  await canCommit(two)
  expect(await refusal(two, 'filter', { includeNamespaces: [{ database: 'shop' }, { database: 'app' }] })).toEqual(
    overlaps,
  )
  expect(await two.post('filter', { includeNamespaces: [{ database: 'shop' }, { database: 'new' }] })).toEqual(accepted)
  expect(await refusal(unnamed, 'start', of('new'))).toEqual([
    422,
    'SyncsOverlap',
    expect.stringMatching(/^the sync "two" .* both select new\.\*;/),
  ])
  expect(await record(`${metadata}_one`)).toEqual(before)
})

it('may copy one database under different names, and are refused if two of them write to the same name', async () => {
  await fill('app', 'shop')
  const remap = (from: string, to: string) => ({
    ...of(from),
    namespaceRemap: [{ from: { database: from }, to: { database: to } }],
  })
  await using one = await named('one')
  expect(await one.post('start', of('app'))).toMatchObject(accepted)
  await using two = await named('two')
  const { status, body } = await two.post('start', remap('shop', 'app'))
  expect([status, body.error, body.errorDescription]).toEqual([
    422,
    'SyncsOverlap',
    expect.stringMatching(/^the sync "one" .* both select app\.\* on the destination;/),
  ])
  expect(await two.post('start', remap('app', 'copy'))).toMatchObject(accepted)
  await using three = await named('three')
  expect((await three.post('start', of('copy'))).body).toMatchObject({ error: 'SyncsOverlap' })
  // No sync writes to `shop` on the destination: the sync "two", which selects it under another name, was refused.
  expect(await three.post('start', of('shop'))).toMatchObject(accepted)
  await Promise.all([one, two, three].map(canCommit))
  await rows(sets.sourceClient, 'app').insertOne({ _id: 3 })
  await Promise.all([one, two, three].map(commit))
  const selects = (database: string): boolean => database === 'app'
  for (const renamed of [{}, { app: 'copy' }])
    expect((await compareBoth(sets.source.uri, sets.destination.uri, { renamed, selects })).differences).toEqual([])
  expect(await rows(sets.destinationClient, 'copy').countDocuments()).toBe(3)
})

it('do not both begin if they overlap and are started at the same moment', async () => {
  await fill('app')
  await using one = await named('one')
  await using two = await named('two')
  const answers = await Promise.all([one, two].map((tandem) => tandem.post('start', of('app'))))
  const begun = answers.filter(({ status }) => status === 200)
  expect(begun.length).toBeLessThanOrEqual(1)
  for (const { status, body } of answers) if (status !== 200) expect(body.error).toBe('SyncsOverlap')
  const records = await Promise.all(['one', 'two'].map((name) => record(`${metadata}_${name}`)))
  expect(records.filter((one) => one !== null)).toHaveLength(begun.length)
})

it('do not disturb each other if they have the same source and different destinations', async () => {
  const other = await borrowReplicaSet()
  await using client = new MongoClient(other.uri)
  try {
    await fill('app')
    await using one = await sets.startInstance()
    await using two = await startTandem({ cluster0: sets.source.uri, cluster1: other.uri })
    const body = { source: 'cluster0', destination: 'cluster1' }
    await expect.poll(async () => (await two.post('start', body)).status, { timeout: 30_000 }).toBe(200)
    expect(await one.post('start', body)).toMatchObject(accepted)
    for (const tandem of [one, two]) await canCommit(tandem)
    await rows(sets.sourceClient, 'app').insertOne({ _id: 3 })
    for (const tandem of [one, two]) await commit(tandem)
    for (const destination of [sets.destination.uri, other.uri])
      expect((await compareBoth(sets.source.uri, destination)).differences).toEqual([])
  } finally {
    await client.db('app').dropDatabase()
    await other.stop()
  }
})
