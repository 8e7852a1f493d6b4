import { describe, expect, test } from 'vitest'
import { buildIndexesModes } from '../../src/domain/build-indexes.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const start = '/api/v1/start'

/** Sends a start. Returns the reply and the configuration that the instance has received. */
async function send(body: unknown) {
  const { post, instance } = apiUnderTest()
  const reply = await post(start, body)
  return { ...reply, calls: instance.calls, configuration: instance.calls[0]?.configuration }
}

/** Expects that the API answers 400 with the name of the field and does not call the instance. */
async function expectRefused(body: unknown, field: string, remedy: RegExp | string) {
  const reply = await send(body)
  expect(reply.status).toBe(400)
  expect(reply.body).toMatchObject({ success: false, error: 'InvalidRequest', errorDescription: expect.any(String) })
  const parts: string[] = reply.body.errorDescription.split('; ')
  const about = parts.find((part) => part.startsWith(`${field}: `))
  expect(about, `${field} in ${reply.body.errorDescription}`).toBeDefined()
  expect(reply.body.errorDescription).toMatch(remedy)
  expect(reply.calls).toEqual([])
}

describe('fields and defaults', () => {
  test('source and destination alone get the documented defaults', async () => {
    const { status, body, configuration } = await send(minimalStart)
    expect(status).toBe(200)
    expect(body).toEqual({ success: true })
    expect(configuration).toEqual({
      source: 'cluster0',
      destination: 'cluster1',
      buildIndexes: 'beforeDataCopy',
      enableUserWriteBlocking: 'destinationOnly',
      writeBlockingGiven: false,
      includeNamespaces: null,
      excludeNamespaces: null,
      reversible: false,
      sharding: null,
      verification: { enabled: true, initialCompareMethod: 'binary' },
      existingData: 'refuse',
      timeseries: 'refuse',
      copyInNaturalOrder: null,
      detectRandomId: true,
      namespaceRemap: null,
    })
  })

  test('either cluster may be the source', async () => {
    const { configuration } = await send({ source: 'cluster1', destination: 'cluster0' })
    expect(configuration).toMatchObject({ source: 'cluster1', destination: 'cluster0' })
  })

  test('copyInNaturalOrder names collections, and true and "." stand for all of them', async () => {
    const named = [{ database: 'shop', collections: ['orders'] }, { database: 'crm' }]
    for (const [given, taken] of [
      [true, [{ database: '.' }]],
      [false, null],
      [[], null],
      [[{ database: '.' }], [{ database: '.' }]],
      [named, named],
    ]) {
      const { configuration } = await send({ ...minimalStart, copyInNaturalOrder: given })
      expect(configuration, JSON.stringify(given)).toMatchObject({ copyInNaturalOrder: taken })
    }
    const refused = (copyInNaturalOrder: unknown, field: string, remedy: RegExp) =>
      expectRefused({ ...minimalStart, copyInNaturalOrder }, field, remedy)
    await refused([{ collections: ['a'] }], 'copyInNaturalOrder[0].database', /required/)
    await refused([{ database: 'shop', collections: [] }], 'copyInNaturalOrder[0].collections', /leave it out/)
    await refused(
      [{ database: 'crm' }, { database: '.', collections: ['a'] }],
      'copyInNaturalOrder[1].collections',
      /all/,
    )
    await refused('all', 'copyInNaturalOrder', /true or false or an array/)
  })

  test('detectRandomId is a boolean', async () => {
    const { configuration } = await send({ ...minimalStart, detectRandomId: false })
    expect(configuration).toMatchObject({ detectRandomId: false })
    await expectRefused({ ...minimalStart, detectRandomId: 20 }, 'detectRandomId', /true or false/)
  })

  test('namespaceRemap names databases in the form of mongosync, or collections', async () => {
    const element = { from: { database: 'shop' }, to: { database: 'store' } }
    const single = {
      from: { database: 'shop', collection: 'orders' },
      to: { database: 'store', collection: 'sales' },
    }
    for (const [given, taken] of [
      [[element], [element]],
      [[single], [single]],
      [[], null],
    ]) {
      const { configuration } = await send({ ...minimalStart, namespaceRemap: given })
      expect(configuration).toMatchObject({ namespaceRemap: taken })
    }
    const refused = (namespaceRemap: unknown, field: string, remedy: RegExp) =>
      expectRefused({ ...minimalStart, namespaceRemap }, field, remedy)
    await refused(element, 'namespaceRemap', /array/)
    await refused([{ from: { database: 'shop' } }], 'namespaceRemap[0].to', /required/)
    await refused([{ ...element, from: {} }], 'namespaceRemap[0].from.database', /required/)
    await refused([{ ...element, to: { database: '' } }], 'namespaceRemap[0].to.database', /must not be empty/)
    await refused(
      [{ ...element, from: { database: 'shop', collection: 'orders' } }],
      'namespaceRemap[0].to.collection',
      /in both/,
    )
    await refused([element, { ...element, from: { database: 'b' } }], 'namespaceRemap[1].to.database', /another name/)
  })

  test('timeseries is refuse or skip', async () => {
    expect((await send({ ...minimalStart, timeseries: 'skip' })).configuration).toMatchObject({ timeseries: 'skip' })
    await expectRefused({ ...minimalStart, timeseries: 'sync' }, 'timeseries', /'refuse' or 'skip'/)
  })

  test.each(['source', 'destination'])('%s is required', async (field) => {
    const { [field as 'source']: _left, ...rest } = minimalStart
    await expectRefused(rest, field, /is required and must be 'cluster0' or 'cluster1'/)
  })

  test.each(['source', 'destination'])('%s must be cluster0 or cluster1', async (field) => {
    await expectRefused({ ...minimalStart, [field]: 'cluster2' }, field, /'cluster0' or 'cluster1'/)
    await expectRefused({ ...minimalStart, [field]: 0 }, field, /'cluster0' or 'cluster1'/)
  })

  test('source and destination must differ', async () => {
    await expectRefused({ source: 'cluster0', destination: 'cluster0' }, 'destination', /must differ from source/)
  })

  test('verification can be disabled; an empty object leaves it enabled', async () => {
    const enabledBy = async (verification: object) =>
      (await send({ ...minimalStart, verification })).configuration?.verification.enabled
    expect(await enabledBy({ enabled: false })).toBe(false)
    expect(await enabledBy({})).toBe(true)
  })

  test('every optional field is checked for its type and allowed values', async () => {
    await expectRefused(
      { ...minimalStart, buildIndexes: 'later' },
      'buildIndexes',
      /'beforeDataCopy' or 'afterDataCopy' or 'excludeHashed' or 'excludeHashedAfterCopy' or 'never'/,
    )
    await expectRefused({ ...minimalStart, reversible: 'yes' }, 'reversible', /true or false/)
    await expectRefused({ ...minimalStart, sharding: true }, 'sharding', /an object/)
    await expectRefused({ ...minimalStart, verification: true }, 'verification', /an object/)
    await expectRefused({ ...minimalStart, verification: [] }, 'verification', /an object/)
    await expectRefused({ ...minimalStart, verification: { enabled: 1 } }, 'verification.enabled', /true or false/)
    await expectRefused({ ...minimalStart, includeNamespaces: {} }, 'includeNamespaces', /an array/)
    await expectRefused({ ...minimalStart, excludeNamespaces: 'zoo' }, 'excludeNamespaces', /an array/)
    await expectRefused({ ...minimalStart, sharding: null }, 'sharding', /an object/)
  })

  test.each([
    ['unknown', { ...minimalStart, unknown: 1 }],
    ['Source', { ...minimalStart, Source: 'cluster0' }],
    ['constructor', { ...minimalStart, constructor: 1 }],
    ['__proto__', `{"source":"cluster0","destination":"cluster1","__proto__":{"reversible":true}}`],
    ['verification.enable', { ...minimalStart, verification: { enable: false } }],
    [
      'includeNamespaces[1].collection',
      { ...minimalStart, includeNamespaces: [{ database: 'a' }, { database: 'b', collection: 'c' }] },
    ],
    [
      'excludeNamespaces[0].collectionsRegex.flags',
      { ...minimalStart, excludeNamespaces: [{ database: 'a', collectionsRegex: { pattern: 'x', flags: 'i' } }] },
    ],
    ['sharding.entries', { ...minimalStart, sharding: { shardingEntries: [], entries: [] } }],
    [
      'sharding.shardingEntries[0].unique',
      { ...minimalStart, sharding: { shardingEntries: [{ ...shardingEntry(), unique: true }] } },
    ],
    [
      'sharding.shardingEntries[0].shardCollection.collation',
      {
        ...minimalStart,
        sharding: { shardingEntries: [{ ...shardingEntry(), shardCollection: { key: [{ a: 1 }], collation: {} } }] },
      },
    ],
  ])('the unknown field %s is refused with its name', async (field, body) => {
    await expectRefused(body, field, /unknown field; the allowed fields are /)
  })

  test('several errors are named at once', async () => {
    const { body } = await send({ source: 'x', reversible: 1, more: true })
    for (const field of ['source', 'destination', 'reversible', 'more']) {
      expect(body.errorDescription).toContain(`${field}: `)
    }
  })

  test('a refusal contains names of fields, never their values', async () => {
    const secret = 'mongodb://root:hunter2@db.test/'
    const bodies: unknown[] = [
      { ...minimalStart, source: secret },
      { ...minimalStart, buildIndexes: secret, verification: secret, reversible: secret },
      { ...minimalStart, includeNamespaces: [{ database: { hunter2: secret } }] },
      { ...minimalStart, [secret]: 1 },
      `{"source": ${secret}`,
      JSON.stringify(secret),
    ]
    for (const body of bodies) {
      const reply = await send(body)
      expect(reply.status).toBe(400)
      expect(JSON.stringify(reply.body)).not.toContain('hunter2@')
      expect(JSON.stringify(reply.body)).not.toContain('root')
    }
  })
})

describe('buildIndexes', () => {
  test('every value is passed on', async () => {
    for (const buildIndexes of buildIndexesModes) {
      expect((await send({ ...minimalStart, buildIndexes })).configuration?.buildIndexes).toBe(buildIndexes)
    }
  })

  test('never with reversible true makes start return an error', async () => {
    const { status, body, calls } = await send({ ...minimalStart, buildIndexes: 'never', reversible: true })
    expect(status).toBe(422)
    expect(body.error).toBe('ReversibleNotSupported')
    expect(body.errorDescription).toMatch(/buildIndexes/)
    expect(calls).toEqual([])
  })
})

describe('enableUserWriteBlocking', () => {
  test.each([
    ['sourceAndDestination', 'sourceAndDestination'],
    ['destinationOnly', 'destinationOnly'],
    ['none', 'none'],
    [true, 'sourceAndDestination'],
    [false, 'none'],
  ])('%j means %s', async (given, meant) => {
    const { configuration } = await send({ ...minimalStart, enableUserWriteBlocking: given })
    expect(configuration?.enableUserWriteBlocking).toBe(meant)
    expect(configuration?.writeBlockingGiven).toBe(true)
  })

  test('another value is refused, and the refusal names the allowed ones', async () => {
    for (const given of ['true', 'both', 1, null, []]) {
      await expectRefused(
        { ...minimalStart, enableUserWriteBlocking: given },
        'enableUserWriteBlocking',
        /must be 'sourceAndDestination' or 'destinationOnly' or 'none' or true or false/,
      )
    }
  })
})

describe('includeNamespaces and excludeNamespaces', () => {
  test('every documented shape of a filter is passed on', async () => {
    const includeNamespaces = [
      { database: 'shop' },
      { database: 'zoo', collections: ['animals', 'visits'] },
      { database: 'zoo', collectionsRegex: { pattern: '^cage_', options: 'i' } },
      { databaseRegex: { pattern: '^tenant' }, collections: ['x'] },
    ]
    const excludeNamespaces = [{ database: 'zoo', collections: ['cage_tmp'] }]
    const { configuration } = await send({ ...minimalStart, includeNamespaces, excludeNamespaces })
    expect(configuration).toMatchObject({ includeNamespaces, excludeNamespaces })
  })

  test('exactly one of database and databaseRegex is required', async () => {
    for (const element of [{}, { collections: ['a'] }, { database: 'a', databaseRegex: { pattern: 'b' } }]) {
      await expectRefused(
        { ...minimalStart, includeNamespaces: [{ database: 'x' }, element] },
        'includeNamespaces[1].database',
        /exactly one of database and databaseRegex/,
      )
    }
  })

  test('collections and collectionsRegex exclude each other', async () => {
    await expectRefused(
      {
        ...minimalStart,
        excludeNamespaces: [{ database: 'a', collections: ['b'], collectionsRegex: { pattern: 'c' } }],
      },
      'excludeNamespaces[0].collectionsRegex',
      /at most one/,
    )
  })

  test('elements have the documented types', async () => {
    const include = (element: unknown) => ({ ...minimalStart, includeNamespaces: [element] })
    await expectRefused(include('zoo'), 'includeNamespaces[0]', /an object/)
    await expectRefused(include({ database: 1 }), 'includeNamespaces[0].database', /a string/)
    await expectRefused(include({ database: '' }), 'includeNamespaces[0].database', /not be empty/)
    await expectRefused(include({ database: 'a', collections: [1] }), 'includeNamespaces[0].collections[0]', /a string/)
    await expectRefused(include({ database: 'a', collections: [] }), 'includeNamespaces[0].collections', /not be empty/)
    await expectRefused(
      include({ database: 'a', collectionsRegex: 'x' }),
      'includeNamespaces[0].collectionsRegex',
      /an object/,
    )
    await expectRefused(
      include({ database: 'a', collectionsRegex: {} }),
      'includeNamespaces[0].collectionsRegex.pattern',
      /is required/,
    )
  })

  test('a filter cannot name a namespace that is never synced', async () => {
    for (const database of ['admin', 'local', 'config', 'mongosync_internal_tandem', 'tandem_internal']) {
      const body = { ...minimalStart, excludeNamespaces: [{ database: 'a' }, { database }] }
      await expectRefused(body, 'excludeNamespaces[1].database', /never synced/)
    }
    await expectRefused(
      { ...minimalStart, includeNamespaces: [{ databaseRegex: { pattern: 'a' }, collections: ['b', 'system.views'] }] },
      'includeNamespaces[0].collections[1]',
      /never synced/,
    )
  })

  test('an empty include list is refused as ambiguous; an empty exclude list excludes nothing', async () => {
    await expectRefused(
      { ...minimalStart, includeNamespaces: [] },
      'includeNamespaces',
      /leave it out to sync everything/,
    )
    expect((await send({ ...minimalStart, excludeNamespaces: [] })).configuration?.excludeNamespaces).toBeNull()
  })
})

describe('sharding', () => {
  const withSharding = (sharding: unknown) => ({ ...minimalStart, sharding })
  const withEntry = (entry: unknown) => withSharding({ shardingEntries: [entry] })
  const withKey = (key: unknown) => withEntry({ ...shardingEntry(), shardCollection: { key } })
  const keyPath = 'sharding.shardingEntries[0].shardCollection.key'

  test('createSupportingIndexes defaults to false', async () => {
    const { configuration } = await send(withEntry(shardingEntry()))
    expect(configuration?.sharding).toEqual({ createSupportingIndexes: false, shardingEntries: [shardingEntry()] })
  })

  test('createSupportingIndexes true and compound and hashed keys are passed on', async () => {
    const key = [{ gate: 1 }, { day: 'hashed' }]
    const shardingEntries = [{ ...shardingEntry(), shardCollection: { key } }]
    const { configuration } = await send(withSharding({ createSupportingIndexes: true, shardingEntries }))
    expect(configuration?.sharding).toEqual({ createSupportingIndexes: true, shardingEntries })
  })

  test('the options of shardCollection are passed on, and have the types of the command', async () => {
    const options = { key: [{ a: 'hashed' }], unique: false, numInitialChunks: 8, presplitHashedZones: true }
    const shardingEntries = [{ ...shardingEntry(), shardCollection: options }]
    const { configuration } = await send(withSharding({ shardingEntries }))
    expect(configuration?.sharding?.shardingEntries).toEqual(shardingEntries)
    const of = 'sharding.shardingEntries[0].shardCollection'
    for (const [field, value, rule] of [
      ['unique', 1, /true or false/],
      ['presplitHashedZones', 'yes', /true or false/],
      ['numInitialChunks', '8', /a number/],
      ['numInitialChunks', 1.5, /an integer/],
      ['numInitialChunks', 0, /at least 1/],
      ['numInitialChunks', 1_000_001, /at most 1000000/],
    ] as const) {
      const shardCollection = { key: [{ a: 1 }], [field]: value }
      await expectRefused(withEntry({ ...shardingEntry(), shardCollection }), `${of}.${field}`, rule)
    }
  })

  test('an empty shardingEntries array is accepted', async () => {
    expect((await send(withSharding({ shardingEntries: [] }))).configuration?.sharding?.shardingEntries).toEqual([])
  })

  test('shardingEntries and every field of an entry are required', async () => {
    await expectRefused(withSharding({}), 'sharding.shardingEntries', /is required and must be an array/)
    for (const field of ['database', 'collection', 'shardCollection']) {
      const { [field as 'database']: _left, ...rest } = shardingEntry()
      await expectRefused(withEntry(rest), `sharding.shardingEntries[0].${field}`, /is required/)
    }
    await expectRefused(withEntry({ ...shardingEntry(), shardCollection: {} }), keyPath, /is required/)
  })

  test('key is an array of objects, and each maps one field name to a direction', async () => {
    await expectRefused(withKey({ a: 1 }), keyPath, /an array/)
    await expectRefused(withKey([]), keyPath, /at least one field/)
    await expectRefused(withKey(['a']), `${keyPath}[0]`, /an object/)
    await expectRefused(withKey([[1]]), `${keyPath}[0]`, /an object/)
    await expectRefused(withKey([{}]), `${keyPath}[0]`, /exactly one field/)
    await expectRefused(withKey([{ a: 1, b: 1 }]), `${keyPath}[0]`, /exactly one field/)
    await expectRefused(withKey([{ a: '1' }]), `${keyPath}[0].a`, /number/)
    await expectRefused(withKey([{ a: 1.5 }]), `${keyPath}[0].a`, /integer/)
    await expectRefused(withKey([{ constructor: 1 }]), `${keyPath}[0]`, /exactly one field/)
  })

  test('createSupportingIndexes is a boolean', async () => {
    await expectRefused(
      withSharding({ createSupportingIndexes: 'true', shardingEntries: [] }),
      'sharding.createSupportingIndexes',
      /true or false/,
    )
  })
})

function shardingEntry() {
  return { database: 'zoo', collection: 'visits', shardCollection: { key: [{ gate: 1 }] } }
}
