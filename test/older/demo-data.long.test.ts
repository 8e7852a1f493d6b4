import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadDataSet, readDataSet } from '../../scripts/demo/data-set.ts'
import { Writer } from '../../scripts/demo/writer.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { compareBoth } from '../support/compare-both.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** Runs the demo with a source of 5.0: with its data, its writer, and its kill during the copy. */

let source: ReplicaSet
let destination: ReplicaSet

beforeAll(async () => {
  const options = { oplogSizeMB: 990, cacheSizeGB: 0.5 }
  ;[source, destination] = await Promise.all([
    startReplicaSet({ ...options, version: '5.0' }),
    startReplicaSet(options),
  ])
})
afterAll(() => Promise.all([source?.stop(), destination?.stop()]))

const copiedShare = ({ collectionCopy }: Progress) =>
  (collectionCopy?.estimatedCopiedBytes ?? 0) / (collectionCopy?.estimatedTotalBytes ?? 1)

test('the demo data is migrated from 5.0 to 6.0 under its writer and a kill, and is verified and equal', async () => {
  const data = readDataSet()
  await loadDataSet(source.uri, data, () => {}, { before6: true })
  const clusters = { cluster0: source.uri, cluster1: destination.uri }
  let tandem = await startTandem(clusters)
  const writer = new Writer(source.uri, data)
  let writerFailure: unknown = null
  try {
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).toMatchObject({ state: 'IDLE' })
    writer.start((error) => {
      writerFailure = error
    })
    await startSync(tandem)
    await tandem.waitFor((progress) => copiedShare(progress) >= 0.4, { timeoutSeconds: 120, what: 'copying' })
    await tandem.kill9()
    tandem = await startTandem(clusters)
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 120, what: 'canCommit' })
    const before = writer.operations
    await expect.poll(() => writer.operations - before, { timeout: 60_000 }).toBeGreaterThan(2_000)
    await writer.stop()
    expect(writerFailure).toBeNull()
    expect(await tandem.post('commit')).toMatchObject({ status: 200 })
    const { verification } = await tandem.waitFor(({ state }) => state === 'COMMITTED', {
      timeoutSeconds: 120,
      what: 'COMMITTED',
    })
    expect(verification?.source?.phase).toBe('stream hashing')
  } finally {
    await writer.close()
    await tandem.stop()
  }
  const { differences, documents } = await compareBoth(source.uri, destination.uri)
  expect(differences).toEqual([])
  expect(documents).toBeGreaterThan(240_000)
})
