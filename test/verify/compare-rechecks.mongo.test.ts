import type { Timestamp } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { Catalog } from '../../src/domain/catalog.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { RecheckComparison } from '../../src/verify/compare-rechecks.ts'
import { Rechecks } from '../../src/verify/rechecks.ts'
import {
  clusters,
  createOnBoth,
  database,
  idElements,
  numbered,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'

useTwoClusters()

it('a recheck reads the source as of the last convergence of its collection or later, because changes before that convergence may have no events', async () => {
  await createOnBoth('things')
  const entry = await clusters.entryOf(database, 'things')
  await appendOplogNote(clusters.source, 'test')
  entry.convergedFrom = clusters.source.latest
  const catalog = new Catalog()
  catalog.add(entry)
  const rechecks = new Rechecks()
  const parts = { clusters, context: clusters.context, catalog: () => catalog, rechecks, knownTime: () => 1n }
  const [idElement] = idElements(numbered(1, 2)) as [Buffer]
  rechecks.changed(entry.uuid, idElement, 'source', 1, 2n)
  const reads = vi.spyOn(clusters.source, 'read')
  onTestFinished(() => reads.mockRestore())
  await new RecheckComparison(parts).compare(rechecks.take(1, 2n, performance.now()))
  const asOf = reads.mock.calls.map(([, { readConcern }]) => (readConcern.afterClusterTime as Timestamp).toBigInt())
  expect(asOf).toEqual([entry.convergedFrom])
  expect(rechecks.count).toBe(0)
})
