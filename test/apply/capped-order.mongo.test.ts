import { expect, it } from 'vitest'
import { restoreCappedOrder } from '../../src/commit/capped-order.ts'
import { insertRaw, rawDocument } from '../support/bson-values.ts'
import { clusters, createOnBoth, database, destination, source } from './reconcile-fixture.ts'

/** At commit the order of a capped collection is compared, and mended from the first difference on. */

const documents = (ids: number[]) =>
  ids.map((id) =>
    rawDocument([
      ['_id', id],
      ['text', `of ${id}`],
    ]),
  )
const wanted = [5, 3, 9, 1, 7, 2]

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
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry)).toBe(rewritten)
    await clusters.expectEqual(database)
    expect(await restoreCappedOrder(clusters.source, clusters.destination, writer, entry)).toBe(0)
  },
)
