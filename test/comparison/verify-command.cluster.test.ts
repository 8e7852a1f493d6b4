import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { spawnGuarded } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { TwoSides } from './two-sides.ts'

/** Runs `tandem verify` as a process, as its users do. */

let sides: TwoSides

beforeAll(async () => {
  sides = await TwoSides.start()
  await sides.fill('shop', (db) =>
    db.collection<{ _id: number }>('orders').insertMany(Array.from({ length: 50 }, (_, _id) => ({ _id, n: _id }))),
  )
})

afterAll(() => sides?.stop())

interface Ended {
  code: number | null
  stdout: string
  stderr: string
}

async function run(args: string[], env: Record<string, string> = {}): Promise<Ended> {
  const { child, ended } = spawnGuarded(
    process.execPath,
    [path.resolve(repositoryRoot, 'dist/main.js'), 'verify', ...args],
    { cwd: repositoryRoot, env: { ...process.env, ...env }, output: 'pipe' },
  )
  const texts = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text
    })
  }
  return { code: await ended, ...texts }
}

const clusters = () => ['--cluster0', sides.sets[0].uri, '--cluster1', sides.sets[1].uri]
const theirs = () => sides.clients[1].db('shop').collection<{ _id: number; n?: number }>('orders')

describe('exit code 0', () => {
  test('when the clusters are equal, with a line that summarizes what was compared', async () => {
    const { code, stdout, stderr } = await run(clusters())
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toMatch(/^equal: 1 collections, 0 views, 50 and 50 documents, 0 MB and 0 MB, \d\.\d s\n$/)
  })

  test('when the differing namespaces are excluded, as after a sync with a filter', async () => {
    const [, theirClient] = sides.clients
    await theirClient.db('shop').collection('log').insertOne({ mine: true })
    await theirClient.db('other').collection('things').insertOne({ mine: true })
    try {
      expect((await run(clusters())).code).toBe(1)
      const { code, stdout } = await run([
        ...clusters(),
        ...['--excludeNamespace', 'shop.log', '--excludeNamespace', 'other'],
      ])
      expect([code, stdout]).toEqual([0, expect.stringMatching(/^equal: 1 collections/)])
      // Exclusion takes precedence over inclusion.
      expect((await run([...clusters(), '--namespace', 'shop', '--excludeNamespace', 'shop.log'])).code).toBe(0)
    } finally {
      await theirClient.db('shop').dropCollection('log')
      await theirClient.db('other').dropDatabase()
    }
  })

  test('with --json and the connection strings from the environment', async () => {
    const env = { TANDEM_CLUSTER0: sides.sets[0].uri, TANDEM_CLUSTER1: sides.sets[1].uri }
    const { code, stdout } = await run(['--json', '--namespace', 'shop'], env)
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      equal: true,
      documents: { cluster0: 50, cluster1: 50 },
      differences: [],
    })
  })
})

describe('exit code 1', () => {
  beforeAll(async () => {
    await theirs().updateOne({ _id: 7 }, { $set: { n: 8 } })
    await theirs().deleteMany({ _id: { $gte: 40 } })
    await theirs().createIndex({ n: 1 })
  })

  test('when the clusters differ, with a line for each difference', async () => {
    const { code, stdout } = await run(clusters())
    expect(code).toBe(1)
    const lines = stdout.trimEnd().split('\n')
    expect(lines.slice(0, 3)).toEqual([
      'shop.orders: index n_1 only on cluster1',
      'shop.orders: document {"$numberInt":"7"} differs at n',
      'shop.orders: document {"$numberInt":"40"} missing on cluster1',
    ])
    expect(lines).toHaveLength(13)
    expect(lines.at(-1)).toMatch(/^DIFFERENT in 12: 1 collections, 0 views, 50 and 40 documents/)
  })

  test('when there are more differences than are listed, with a line about the truncation', async () => {
    const { code, stdout } = await run([...clusters(), '--maxDifferences', '2', '--ignoreIndexes'])
    expect(code).toBe(1)
    expect(stdout).toContain('truncated: 2 of 11 differences listed; see --maxDifferences\n')
    const json = await run([...clusters(), '--maxDifferences', '2', '--json'])
    expect(json.code).toBe(1)
    expect(JSON.parse(json.stdout)).toMatchObject({ equal: false, totalDifferences: 12, truncated: true })
  })
})

describe('exit code 2', () => {
  test('when an option is wrong', async () => {
    const { code, stderr } = await run([...clusters(), '--maxDifferences', 'many'])
    expect(code).toBe(2)
    expect(stderr).toMatch(/0 to 1000000/)
  })

  test('when a namespace is on neither cluster', async () => {
    const { code, stdout, stderr } = await run([...clusters(), '--namespace', 'shop.order', '--json'])
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toBe('error: --namespace shop.order is on neither cluster; check its spelling\n')
  })

  test('when --remap names a database that is not compared, for example because the names are in the wrong order', async () => {
    const options = ['--remap', 'store=sold', '--excludeNamespace', 'sold', '--json']
    const { code, stdout, stderr } = await run([...clusters(), ...options])
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/--remap store=sold: neither .* is compared;.* give --remap sold=store/)
  })

  test('when --remap names a collection that is not compared, or leaves one without a partner', async () => {
    const absent = await run([...clusters(), '--remap', 'shop.none=shop.nothing', '--json'])
    expect([absent.code, absent.stdout]).toEqual([2, ''])
    expect(absent.stderr).toMatch(/--remap shop\.none=shop\.nothing: neither .* is compared/)
    const options = ['--remap', 'shop.orders=depot.sold', '--json']
    const client = sides.clients[1]
    await client.db('depot').collection('sold').insertOne({ mine: true })
    try {
      const unpaired = await run([...clusters(), ...options])
      expect([unpaired.code, unpaired.stdout]).toEqual([2, ''])
      expect(unpaired.stderr).toMatch(/depot\.sold on cluster0 and shop\.orders on cluster1 have no partner/)
      const compared = await run([...clusters(), ...options, '--excludeNamespace', 'depot.sold'])
      expect(compared.code).toBe(1)
      const { differences } = JSON.parse(compared.stdout)
      expect(differences[0]).toMatchObject({ namespace: 'shop.orders', what: 'document' })
    } finally {
      await client.db('depot').dropDatabase()
    }
  })

  test('when both connection strings lead to one cluster', async () => {
    const { code, stderr } = await run(['--cluster0', sides.sets[0].uri, '--cluster1', sides.sets[0].uris[0] as string])
    expect(code).toBe(2)
    expect(stderr).toMatch(/both connection strings lead to the same server/)
  })

  test('when a cluster cannot be reached or refuses the user, without printing credentials', async () => {
    const at = (address: string) => `mongodb://root:hunter2@${address}/?directConnection=true`
    const address = new URL(sides.sets[1].uris[0] as string).host
    const runs = await Promise.all([
      run(['--cluster0', sides.sets[0].uri, '--cluster1', at('127.0.0.1:1')]),
      run(['--cluster0', sides.sets[0].uri, '--cluster1', at(address)]),
      run(['--cluster0', sides.sets[0].uri, '--cluster1', `${at(address)}&tls=certainly`]),
    ])
    expect(runs.map(({ code }) => code)).toEqual([2, 2, 2])
    expect(runs[0]?.stderr).toMatch(/^error: cluster1 cannot be reached; check its address/)
    expect(runs[1]?.stderr).toMatch(/^error: cluster1 refuses the user; check the credentials/)
    for (const { stdout, stderr } of runs) expect(stdout + stderr).not.toMatch(/hunter2|root/)
  })
})
