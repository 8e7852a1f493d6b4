import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { InventoryReport } from '../../src/inventory/compare-clusters.ts'
import { runInventory } from '../../src/inventory/run-inventory.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { runScript } from './run-script.ts'

/** `tandem inventory` compares what tandem does not sync, here on two replica sets. The tests run the scripts that it prints. */

let sets: ReplicaSet[]
let clients: MongoClient[]

beforeAll(async () => {
  sets = await Promise.all([startReplicaSet({ auth: true }), startReplicaSet({ auth: true })])
  clients = sets.map((set) => new MongoClient(set.uri))
  for (const client of clients) await client.db('app').collection('things').insertOne({})
})
afterAll(async () => {
  await Promise.all((clients ?? []).map((client) => client.close()))
  await Promise.all((sets ?? []).map((set) => set.stop()))
})

const onFirst = (database: string) => (clients[0] as MongoClient).db(database)
const onSecond = (database: string) => (clients[1] as MongoClient).db(database)
const hostOfSecond = () => new URL(sets[1]?.uris[0] ?? '').host
const uris = () => sets.map(({ uri }) => uri)

async function inventory(json: boolean, [cluster0 = '', cluster1 = ''] = uris()) {
  let out = ''
  let err = ''
  const take = { out: (text: string) => (out += text), err: (text: string) => (err += text) }
  return { code: await runInventory({ cluster0, cluster1, json }, take), out, err }
}

const report = async (): Promise<InventoryReport> => JSON.parse((await inventory(true)).out)
const found = ({ differences }: InventoryReport) => differences.map(({ how, kind, name }) => `${how}: ${kind} ${name}`)

it('nothing differs between new clusters', async () => {
  const { code, out, err } = await inventory(false)
  expect([code, err]).toEqual([0, ''])
  expect(out).toBe('// nothing differs; compared: role, user, cluster parameter, profiler, cluster setting\n')
})

describe('a script', () => {
  it('creates missing items: roles before the roles that inherit from them, and before users', async () => {
    await onFirst('app').command({
      createRole: 'reads',
      privileges: [{ resource: { db: 'app', collection: 'a"b\u2028' }, actions: ['find', 'listIndexes'] }],
      roles: [],
    })
    await onFirst('admin').command({
      createRole: 'inherits',
      privileges: [],
      roles: [{ role: 'reads', db: 'app' }],
      authenticationRestrictions: [{ clientSource: ['127.0.0.1'] }],
    })
    await onFirst('app').command({
      createUser: 'ann "the" user',
      pwd: 'a secret of cluster0',
      roles: ['readWrite', { role: 'inherits', db: 'admin' }],
      customData: { since: new Date(0), n: 1 },
      mechanisms: ['SCRAM-SHA-256'],
    })
    await onFirst('admin').command({
      setClusterParameter: { changeStreamOptions: { preAndPostImages: { expireAfterSeconds: 100 } } },
    })
    await onFirst('app').command({ profile: 1, slowms: 77, sampleRate: 0.5 })

    const before = await report()
    expect(found(before)).toEqual([
      'missing: role reads@app',
      'missing: role inherits@admin',
      'missing: user ann "the" user@app',
      'different: cluster parameter changeStreamOptions',
      'different: profiler of all databases',
      'missing: profiler of app',
    ])
    const { code, out } = await inventory(false)
    expect(code).toBe(1)
    expect(out).not.toMatch(/a secret of cluster0|credentials|storedKey|SCRAM-SHA-256":/)
    await runScript(clients[1] as MongoClient, out, 'another secret')
    expect(found(await report())).toEqual([])
    // The user can log in with the password that was entered at the prompt.
    const uri = `mongodb://${encodeURIComponent('ann "the" user')}:another%20secret@${hostOfSecond()}/app?directConnection=true`
    await using ann = await MongoClient.connect(uri)
    expect(await ann.db('app').collection('things').countDocuments()).toBe(1)
  })

  it('changes differing items, and contains removals only as comments', async () => {
    await onFirst('app').command({ updateUser: 'ann "the" user', roles: ['read'], customData: {} })
    await onFirst('app').command({ updateRole: 'reads', privileges: [] })
    await onFirst('app').command({ profile: 0 })
    // Level 0 keeps a filter, so only "unset" removes it.
    await onSecond('app').command({ profile: 1, filter: { millis: { $gt: 5 } } })
    await onSecond('admin').command({ createUser: 'other', pwd: 'secret', roles: [] })
    await onSecond('admin').command({ createRole: 'another', privileges: [], roles: [] })

    const { out } = await inventory(false)
    expect(out).toContain('// user ann "the" user@app differs in roles, customData\n')
    expect(out).toContain('// role reads@app differs in privileges\n')
    expect(out).toContain('// db.getSiblingDB("admin").dropUser("other") // removes a user\n')
    await runScript(clients[1] as MongoClient, out, '')
    expect(found(await report())).toEqual(['extra: role another@admin', 'extra: user other@admin'])
    await onSecond('admin').command({ dropUser: 'other' })
    await onSecond('admin').command({ dropRole: 'another' })
    expect((await inventory(false)).code).toBe(0)
  })
})

describe('a user who', () => {
  it('lacks privileges gets their names instead of a report without differences', async () => {
    const limited = await Promise.all(sets.map((set) => set.createUser('limited', 'hunter2', ['clusterMonitor'])))
    const { code, out } = await inventory(false, limited)
    expect(code).toBe(2)
    for (const privilege of ['viewRole on every database', 'viewUser on every database']) {
      expect(out).toMatch(new RegExp(`^// not compared: .*on cluster0: .*; grant ${privilege}`, 'm'))
    }
    expect(out).toMatch(/^\/\/ nothing differs; compared: .*cluster setting/m)
    expect(out).not.toContain('hunter2')
  })

  it('has the privileges that are named compares everything', async () => {
    const roles = ['userAdminAnyDatabase', 'clusterMonitor', 'clusterManager', 'dbAdminAnyDatabase']
    const given = [...roles, { role: 'dbAdmin', db: 'admin' }]
    const enough = await Promise.all(sets.map((set) => set.createUser('enough', 'hunter2', given)))
    const { code, out } = await inventory(false, enough)
    expect([code, out]).toEqual([0, expect.stringContaining('profiler, cluster setting')])
  })

  it('is refused, or gives a cluster that does not answer, gets an error without credentials', async () => {
    const [first = ''] = uris()
    const at = (host: string) => `mongodb://root:hunter2@${host}/?directConnection=true&serverSelectionTimeoutMS=500`
    const refused = await inventory(false, [first, at(hostOfSecond())])
    expect(refused).toMatchObject({ code: 2, out: '', err: expect.stringMatching(/^error: cluster1 refuses the user/) })
    const silent = await inventory(false, [first, at('127.0.0.1:1')])
    expect(silent).toMatchObject({ code: 2, err: expect.stringMatching(/^error: cluster1 cannot be reached/) })
    expect(refused.err + silent.err).not.toMatch(/hunter2|root/)
  })
})

// A server resets its cluster parameters when its featureCompatibilityVersion changes, so this test is the last one.
it('names another featureCompatibilityVersion, and leaves the decision to the reader', async () => {
  await onSecond('admin').command({ setFeatureCompatibilityVersion: '5.0' })
  try {
    const { out, code } = await inventory(false)
    expect(code).toBe(1)
    expect(out).toContain('// cluster setting featureCompatibilityVersion differs in version\n')
    expect(out).toContain('// db.adminCommand({ setFeatureCompatibilityVersion: "6.0" }) // is hard to undo')
  } finally {
    await onSecond('admin').command({ setFeatureCompatibilityVersion: '6.0' })
  }
})
