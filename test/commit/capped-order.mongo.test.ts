import { expect, it } from 'vitest'
import { restoreCappedOrder } from '../../src/commit/capped-order.ts'
import type { DocumentWriter } from '../../src/documents/write-identities.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  source,
  useTwoClusters,
} from '../definitions/reconcile-fixture.ts'
import { insertRaw, rawDocument } from '../support/bson-values.ts'

/** A commit compares the order of documents in a capped collection, and restores it from the first difference on. */

useTwoClusters()

const documents = (ids: number[]) =>
  ids.map((id) =>
    rawDocument([
      ['_id', id],
      ['text', `of ${id}`],
    ]),
  )
const wanted = [5, 3, 9, 1, 7, 2]
const ongoing = () => new AbortController().signal

it.each([
  ['with the same order', wanted, 0],
  ['with one document out of place', [5, 9, 1, 3, 7, 2], 5],
  ['without the last documents', [5, 3, 9, 1], 2],
  ['with an extra document', [5, 3, 4, 9, 1, 7, 2], 4],
  ['with the reverse order', [2, 7, 1, 9, 3, 5], 6],
  ['without documents', [], 6],
])(
  'a destination %s is rewritten from the first difference on, and a repetition rewrites nothing',
  async (_how, existing, rewritten) => {
    await createOnBoth('c', { capped: true, size: 100_000 })
    await insertRaw(source(), 'c', documents(wanted))
    if (existing.length > 0) await insertRaw(destination(), 'c', documents(existing))
    const entry = await clusters.entryOf(database, 'c')
    const { writer } = clusters.dependencies
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())).toBe(rewritten)
    await clusters.expectEqual(database)
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())).toBe(0)
  },
)

it('a restoration that is stopped while it compares, deletes or inserts runs no further command, and a repetition completes it', async () => {
  const count = 2_000
  await createOnBoth('c', { capped: true, size: 1_000_000 })
  await insertRaw(source(), 'c', documents(Array.from({ length: count }, (_, at) => at)))
  await insertRaw(destination(), 'c', documents(Array.from({ length: count }, (_, at) => count - 1 - at)))
  const entry = await clusters.entryOf(database, 'c')
  const { writer } = clusters.dependencies
  const existing = () => destination().collection('c').countDocuments()
  for (const [stopsAt, left] of [
    ['delete', count - 500],
    ['insert', 500],
  ] as const) {
    const stop = new AbortController()
    /** Stops the restoration during the first command of this kind. */
    const stopping = {
      delete: async (...given: Parameters<DocumentWriter['delete']>) => {
        if (stopsAt === 'delete') stop.abort()
        return await writer.delete(...given)
      },
      insert: async (...given: Parameters<DocumentWriter['insert']>) => {
        if (stopsAt === 'insert') stop.abort()
        return await writer.insert(...given)
      },
    } as DocumentWriter
    const restoring = restoreCappedOrder(clusters.source, clusters.destination, stopping, entry, stop.signal)
    await expect(restoring, stopsAt).rejects.toBeInstanceOf(StoppedError)
    expect(await existing(), stopsAt).toBe(left)
  }
  const stopped = restoreCappedOrder(clusters.source, clusters.destination, writer, entry, AbortSignal.abort())
  await expect(stopped).rejects.toBeInstanceOf(StoppedError)
  await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())
  await clusters.expectEqual(database)
})
