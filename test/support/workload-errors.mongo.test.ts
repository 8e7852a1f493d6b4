import { expect, it } from 'vitest'
import { oneSet } from '../mongo/one-set.ts'
import { insertRaw, rawDocument } from './bson-values.ts'
import { classify } from './workload-errors.ts'

const one = oneSet()

it('a pipeline update that sets a duplicate field of a document fails with an expected error', async () => {
  const db = one.client.db('workload')
  await insertRaw(db, 'things', [
    rawDocument([
      ['_id', 1],
      ['q', 1],
      ['q', 2],
    ]),
  ])
  const update = db.collection<{ _id: number }>('things').updateOne({ _id: 1 }, [{ $set: { q: { r: 3 } } }])
  const error = await update.then(
    () => null,
    (thrown: unknown) => thrown,
  )
  expect(classify(error)).toEqual({ kind: 'natural', name: '7693400 DuplicateField' })
})
