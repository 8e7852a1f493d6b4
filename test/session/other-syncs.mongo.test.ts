import { expect, it } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { type BeginSyncParts, beginSync } from '../../src/session/begin-sync.ts'
import { findBeside, OtherSyncs, refuseBeside } from '../../src/session/other-syncs.ts'
import { findEverything, readClusters } from '../../src/session/start-checks.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { storedConfiguration, storedRecord } from './stored-record.ts'

/** Syncs beside other syncs into the same destination, in part with users that lack privileges. */

const one = oneSet({ auth: true })
const context = testContext()
const database = (name: string) => ({ includeNamespaces: [{ database: name }], excludeNamespaces: null })
const configured = (name: string): StartConfiguration => ({
  ...storedConfiguration,
  ...{ enableUserWriteBlocking: 'none', reversible: false },
  ...database(name),
})

it('a sync continues, and may be committed, if its user may not read the metadata of a sync that begins later', async () => {
  const names = [metadataDatabase, olderMetadataDatabase]
  const uri = await one.set.createUser('ownDatabases', 'secret', [
    {
      role: 'ownDatabases',
      privileges: [
        { resource: { cluster: true }, actions: ['listDatabases'] },
        ...names.map((db) => ({ resource: { db, collection: '' }, actions: ['find'] })),
      ],
    },
  ])
  const limited = testCluster(uri)
  try {
    await new Metadata(one.cluster, context, undefined, `${metadataDatabase}_later`).createSync({
      ...storedRecord,
      configuration: configured('shop'),
    })
    const selection = new Selection(limited, database('app'))
    const others = new OtherSyncs({
      ...{ source: limited, destination: limited, context, selection: () => selection },
      record: storedRecord,
    })
    await others.check(context)
    // A start compares the filters of both syncs, so it must read those of the other sync.
    await expect(
      refuseBeside(configured('app'), { source: limited, destination: limited, context }),
    ).rejects.toMatchObject({ failure: 'MissingPrivileges' })
  } finally {
    await limited.close()
  }
})

it('a start is refused with the name of the privilege that its user lacks, and nothing is stored', async () => {
  const uri = await one.set.createUser('noList', 'secret', [
    {
      role: 'noList',
      privileges: [
        { resource: { cluster: true }, actions: ['replSetGetConfig', 'useUUID'] },
        { resource: { db: '', collection: '' }, actions: ['find', 'listCollections', 'collStats'] },
      ],
    },
  ])
  const limited = testCluster(uri)
  try {
    const parts = {
      clusters: { cluster0: one.cluster, cluster1: limited },
      ...{ context, redis: false, findStored: async () => null },
    } as Partial<BeginSyncParts> as BeginSyncParts
    const checked = await readClusters(configured('app'), one.cluster, limited)
    await expect(beginSync(checked, parts)).rejects.toMatchObject({
      refusal: 'MissingPrivileges',
      message: expect.stringMatching(/lacks privileges: .*listDatabases/),
    })
    const check = { source: one.cluster, destination: limited, context }
    const found = await findEverything(configured('app'), one.cluster, limited, { skipDiskSpaceCheck: false })
    const missing = expect.objectContaining({ name: 'MissingPrivileges' })
    expect(found).toContainEqual(missing)
    expect(await findBeside(configured('app'), check, found)).toEqual([])
    expect(await findBeside(configured('app'), check, [])).toEqual([missing])
    expect(await one.client.db(metadataDatabase).collection('sync').countDocuments()).toBe(0)
  } finally {
    await limited.close()
  }
})

it('a sync fails beside a sync of an earlier release between the same clusters, and not beside one with a third cluster', async () => {
  const cluster = testCluster(one.set.uri)
  try {
    const record = storedRecord
    const selection = new Selection(cluster, database('app'))
    const others = new OtherSyncs({
      source: cluster,
      destination: cluster,
      record,
      context,
      selection: () => selection,
    })
    const older = new Metadata(one.cluster, context, undefined, olderMetadataDatabase)
    const stored = { ...storedRecord, configuration: configured('shop') }
    await older.createSync({ ...stored, sourceIdentity: 'third', destinationIdentity: 'zero' })
    await others.check(context)
    await one.client.db(olderMetadataDatabase).dropDatabase()
    await older.createSync({ ...stored, sourceIdentity: 'one', destinationIdentity: 'zero' })
    await expect(others.check(context)).rejects.toMatchObject({ failure: 'StoredStateConflict' })
  } finally {
    await one.client.db(olderMetadataDatabase).dropDatabase()
    await cluster.close()
  }
})
