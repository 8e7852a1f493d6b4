import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { refuseConflicts } from '../../src/rehearse/prepared-clusters.ts'
import { RehearsalCluster, reverseClaimDatabase } from '../../src/rehearse/rehearsal-cluster.ts'
import { RehearsalDatabases } from '../../src/rehearse/rehearsal-databases.ts'
import { databaseNames, serverDatabases } from '../support/databases.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** Tests the claims of rehearsals that begin at the same time, and the cleanup while a cluster refuses commands. */

const pair = pairedSets()

const reversing = { prefix: 'r', blockWrites: true, reverse: true }
const filtering = { prefix: 'r', blockWrites: false, reverse: false }

let clusters: { source: RehearsalCluster; destination: RehearsalCluster }
beforeEach(() => {
  const source = new RehearsalCluster('cluster0', pair.source.uri)
  clusters = { source, destination: new RehearsalCluster('cluster1', pair.destination.uri) }
})
afterEach(async () => {
  await Promise.all([clusters.source.close(), clusters.destination.close()])
})

const namesOn = (cluster: RehearsalCluster): Promise<string[]> => databaseNames(cluster.client, serverDatabases)

async function block(): Promise<void> {
  for (const { client } of [clusters.source, clusters.destination]) {
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: true })
  }
}

/** Makes cluster1 answer as a member that steps down. */
const withoutPrimary = (failCommands: string[], mode: unknown = 'alwaysOn') =>
  failPoint(pair.destinationClient, 'failCommand', { failCommands, errorCode: 189, appName: 'tandem rehearse' }, mode)

/** Stores what the instances of this rehearsal store, and blocks writes as its commit does. */
async function runningSync(): Promise<RehearsalDatabases> {
  const databases = new RehearsalDatabases(reversing, clusters)
  await databases.claim()
  const instances = pair.destinationClient.db(metadataDatabase).collection<{ _id: string }>('instances')
  await databases.sync.start(async () => void (await instances.insertOne({ _id: databases.instances[0] })))
  await block()
  return databases
}

describe('the claims of a rehearsal', () => {
  it.each([
    ['--reverse last', [filtering, reversing]],
    ['--reverse first', [reversing, filtering]],
  ])('exclude a rehearsal of the other kind that begins at the same time (%s)', async (_, kinds) => {
    const [first, second] = kinds.map((kind) => ({ kind, databases: new RehearsalDatabases(kind, clusters) }))
    if (!first || !second) throw new Error('two kinds are expected')
    const both = [clusters.source, clusters.destination]
    const check = ({ kind, databases }: typeof first) => refuseConflicts(both, kind, databases.claimDatabase)
    await first.databases.claim()
    await check(first)
    await second.databases.claim()
    await expect(check(second)).rejects.toThrow(
      /already has the databases r_probes|a rehearsal with --reverse uses all/,
    )
    expect(await second.databases.release()).toEqual([])
    // The first rehearsal has its claim still.
    for (const cluster of both) expect(await namesOn(cluster)).toEqual([first.databases.claimDatabase])
    await check(first)
    expect(await first.databases.release()).toEqual([])
    for (const cluster of both) expect(await namesOn(cluster)).toEqual([])
  })

  it('are released without the probes of a rehearsal of the other kind', async () => {
    const databases = new RehearsalDatabases(filtering, clusters)
    await databases.claim()
    await clusters.source.client.db(databases.probes).collection('probe').insertOne({})
    expect(await databases.release()).toEqual([])
    expect(await namesOn(clusters.source)).toEqual([databases.probes])
    expect(await clusters.source.client.db(databases.probes).collection('probe').countDocuments()).toBe(1)
  })
})

describe('the cleanup of a rehearsal', () => {
  it('allows writes on cluster0 while cluster1 has no primary, and names the command for cluster1', async () => {
    const databases = await runningSync()
    {
      await using _ = await withoutPrimary(['find', 'setUserWriteBlockMode', 'dropDatabase'])
      const problems = (await databases.cleanUp(0)).join('\n')
      expect(problems).toMatch(/allowing writes on cluster1 failed: .*--unblock cluster0 --unblock cluster1, and check/)
      expect(problems).not.toContain('allowing writes on cluster0')
      expect(await writesBlocked(pair.sourceClient)).toBe(false)
      expect(await namesOn(clusters.source)).toEqual([])
      expect(await namesOn(clusters.destination)).toContain(metadataDatabase)
    }
    expect(await databases.cleanUp()).toEqual([])
    expect(await writesBlocked(pair.destinationClient)).toBe(false)
    expect(await namesOn(clusters.destination)).toEqual([])
  })

  it('repeats steps until cluster1 has a primary again', async () => {
    const databases = await runningSync()
    await using _ = await withoutPrimary(['find', 'setUserWriteBlockMode', 'dropDatabase'], { times: 4 })
    expect(await databases.cleanUp()).toEqual([])
    for (const client of [pair.sourceClient, pair.destinationClient]) expect(await writesBlocked(client)).toBe(false)
    for (const cluster of [clusters.source, clusters.destination]) expect(await namesOn(cluster)).toEqual([])
  })

  it('tells the operator to check the clusters if start was sent and no sync is found', async () => {
    const databases = new RehearsalDatabases(reversing, clusters)
    await databases.claim()
    expect(await namesOn(clusters.source)).toEqual([reverseClaimDatabase])
    await databases.sync.start(async () => {})
    const [problem, ...more] = await databases.cleanUp()
    expect(problem).toMatch(
      /its sync was not found, .*check whether writes are accepted on cluster0 and cluster1; npx tandem clean --unblock cluster0/,
    )
    expect(more).toEqual([])
    expect(await namesOn(clusters.source)).toEqual([])
  })
})
