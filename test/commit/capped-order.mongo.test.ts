import { expect, it } from 'vitest'
import { restoreCappedOrder } from '../../src/commit/capped-order.ts'
import type { DocumentWriter } from '../../src/documents/write-identities.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { clusters, createOnBoth, database, destination, source } from '../definitions/reconcile-fixture.ts'
import { insertRaw, rawDocument } from '../support/bson-values.ts'

/** At commit the order of a capped collection is compared, and mended from the first difference on. */

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
  ['in order', wanted, 0],
  ['with one out of place', [5, 9, 1, 3, 7, 2], 5],
  ['with the last ones missing', [5, 3, 9, 1], 2],
  ['with one too many', [5, 3, 4, 9, 1, 7, 2], 4],
  ['the other way round', [2, 7, 1, 9, 3, 5], 6],
  ['empty', [], 6],
])(
  'a destination that has them %s ends as the source, also when it is done again',
  async (_how, standing, rewritten) => {
    await createOnBoth('c', { capped: true, size: 100_000 })
    await insertRaw(source(), 'c', documents(wanted))
    if (standing.length > 0) await insertRaw(destination(), 'c', documents(standing))
    const entry = await clusters.entryOf(database, 'c')
    const { writer } = clusters.dependencies
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())).toBe(rewritten)
    await clusters.expectEqual(database)
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())).toBe(0)
  },
)

it('stopped, it goes no further, whether it compares, deletes or writes, and done again it ends as the source', async () => {
  const count = 2_000
  await createOnBoth('c', { capped: true, size: 1_000_000 })
  await insertRaw(source(), 'c', documents(Array.from({ length: count }, (_, at) => at)))
  await insertRaw(destination(), 'c', documents(Array.from({ length: count }, (_, at) => count - 1 - at)))
  const entry = await clusters.entryOf(database, 'c')
  const { writer } = clusters.dependencies
  const standing = () => destination().collection('c').countDocuments()
  for (const [stopsAt, left] of [
    ['delete', count - 500],
    ['insert', 500],
  ] as const) {
    const stop = new AbortController()
    /** Told to stop during its first command of this kind. */
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
    expect(await standing(), stopsAt).toBe(left)
  }
  const stopped = restoreCappedOrder(clusters.source, clusters.destination, writer, entry, AbortSignal.abort())
  await expect(stopped).rejects.toBeInstanceOf(StoppedError)
  await restoreCappedOrder(clusters.source, clusters.destination, writer, entry, ongoing())
  await clusters.expectEqual(database)
})
