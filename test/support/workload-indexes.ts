import type { Document } from 'mongodb'
import type { Operation, World } from './workload-world.ts'

/** Long enough that nothing expires while a test runs, and different values, so that a lost value is detected. */
const expirySeconds = [100_000, 200_000, 999_999, 2_147_483_647] as const

const caseless = { locale: 'en', strength: 2 }

type IndexSpec = Document & { key: Document; name: string }

function randomIndex(world: World): IndexSpec {
  const { random } = world
  const suffix = random.chance(0.1) ? '_again' : ''
  const index = (name: string, key: Document, options: Document = {}): IndexSpec => ({
    key,
    name: `${name}${suffix}`,
    ...options,
  })
  return random.pick<() => IndexSpec>([
    () => index('n_1', { n: 1 }),
    () => index('n_1_s_-1', { n: 1, s: -1 }),
    () => index('s_1_n_1', { s: 1, n: 1 }, { hidden: random.chance(0.3) }),
    () => index('o.y.z_1', { 'o.y.z': 1 }, { sparse: random.chance(0.5) }),
    () => index('u_1', { u: 1 }, { unique: true }),
    () => index('u_sparse', { u: 1 }, { unique: true, sparse: true }),
    () => index('u_-1', { u: -1 }, { unique: true, partialFilterExpression: { u: { $type: 'string' } } }),
    () => index('u_plain', { u: 1 }),
    () => index('n_u', { n: 1, u: 1 }, { unique: true, hidden: random.chance(0.2) }),
    () => index('expires_1', { expires: 1 }, { expireAfterSeconds: random.pick(expirySeconds) }),
    () =>
      index(
        'expires_-1',
        { expires: -1 },
        { expireAfterSeconds: random.pick(expirySeconds), hidden: random.chance(0.3) },
      ),
    () => index('hidden_s', { s: -1 }, { hidden: true }),
    () =>
      index(
        'partial_n',
        { n: -1 },
        { partialFilterExpression: { n: { $gt: random.int(0, 50) }, 'o.x': { $exists: true } } },
      ),
    () => index('a_1', { a: 1 }),
    () => index('f_a', { f: 1, a: 1 }),
    () =>
      index(
        's_text',
        { s: 'text', t: 'text' },
        { weights: { s: 3 }, default_language: random.pick(['english', 'none', 'german']) },
      ),
    () => index('geo_2dsphere', { geo: '2dsphere' }),
    () => index('$**_1', { '$**': 1 }),
    () => index('wild', { '$**': 1 }, { wildcardProjection: { o: 1, f: 1 } }),
    () => index('o.$**_1', { 'o.$**': 1 }),
    () => index('s_hashed', { s: 'hashed' }),
    () => index('f_hashed', { f: 'hashed' }),
    () => index('s_caseless', { s: 1 }, { collation: caseless }),
    () => index('s_simple', { s: 1 }, { collation: { locale: 'simple' } }),
    () => index('long name with späces', { q: 1 }, { storageEngine: { wiredTiger: { configString: '' } } }),
  ])()
}

export const createIndexes: Operation = async (world) => {
  const target = world.existing({ archive: true })
  const indexes = Array.from({ length: world.random.chance(0.2) ? 3 : 1 }, () => randomIndex(world))
  world.target = `${target.database}.${target.name}`
  await world.db(target.database).command({ createIndexes: target.name, indexes })
}

export const dropIndexes: Operation = async (world) => {
  const target = world.existing({ archive: true })
  const collection = world.collection(target)
  if (world.random.chance(0.15)) {
    await collection.dropIndexes()
    return
  }
  const names = await indexNames(world, target)
  const name = names.length > 0 ? world.random.pick(names) : 'n_1'
  const several = names.length > 1 && world.random.chance(0.2)
  await world.db(target.database).command({ dropIndexes: target.name, index: several ? names.slice(0, 2) : name })
}

/** Returns the names in the same order on every server. */
async function indexNames(world: World, target: { database: string; name: string }): Promise<string[]> {
  const indexes = await world.collection(target).listIndexes().toArray()
  return indexes
    .map(({ name }) => name as string)
    .filter((name) => name !== '_id_')
    .sort()
}

export const modifyIndex: Operation = async (world) => {
  const { random } = world
  const target = world.existing({ archive: true })
  const indexes = (await world.collection(target).listIndexes().toArray())
    .filter(({ name }) => name !== '_id_')
    .sort((a, b) => (a['name'] < b['name'] ? -1 : 1))
  const index = indexes.length > 0 ? random.pick(indexes) : { name: 'n_1' }
  // The server also converts hashed and wildcard indexes to unique, but no createIndexes can create such indexes.
  const plain = indexes.filter(({ key }) =>
    Object.entries(key).every(([field, kind]) => !field.includes('$**') && Math.abs(Number(kind)) === 1),
  )
  const uniqueName = plain.length > 0 ? random.pick(plain)['name'] : 'u_1'
  // Only this field gets an expiry: other fields contain past dates, and an expiry on a wildcard index crashes the
  // server (6.0.27, fassert 28782).
  const expires = indexes.find(({ key }) => key['expires'] !== undefined)
  const modify = (change: Document, name = index['name']) =>
    world.db(target.database).command({ collMod: target.name, index: { name, ...change } })
  await random.pick([
    () => modify({ hidden: true }),
    () => modify({ hidden: false }),
    () =>
      world.db(target.database).command({
        collMod: target.name,
        index: { name: expires?.['name'] ?? 'expires_1', expireAfterSeconds: random.pick(expirySeconds) },
      }),
    async () => {
      await modify({ prepareUnique: true }, uniqueName)
      // Sometimes only the first step is done: `prepareUnique` alone already rejects duplicates and must be replicated.
      if (random.chance(0.7)) await modify({ unique: true }, uniqueName)
    },
    () => modify({ prepareUnique: false }, uniqueName),
  ])()
}
