import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { commit } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** A sync that an earlier release began has only the indexes of that release on the metadata. */

const pair = pairedSets()

it('a coordinator creates the indexes of the metadata that the sync of an earlier release does not have', async () => {
  await pair.sourceClient
    .db('app')
    .collection('things')
    .insertMany([{ a: 1 }, { a: 2 }])
  const internal = pair.destinationClient.db(metadataDatabase)
  const indexes = async (name: string) => (await internal.collection(name).indexes()).map((index) => index.name).sort()
  {
    await using earlier = await pair.startInstance()
    await startSync(earlier, { enableUserWriteBlocking: 'none' })
    await earlier.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  }
  const all = { segments: await indexes('segments'), tombstones: await indexes('tombstones') }
  await internal.collection('segments').dropIndex('done_owner_priority')
  await internal.collection('tombstones').dropIndex('collection_order_id')
  await using tandem = await pair.startInstance()
  await vi.waitFor(
    async () => {
      expect({ segments: await indexes('segments'), tombstones: await indexes('tombstones') }).toEqual(all)
    },
    { timeout: 30_000, interval: 50 },
  )
  await commit(tandem)
})
