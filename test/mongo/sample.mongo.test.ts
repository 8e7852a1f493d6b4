import type { Binary, CollectionInfo } from 'mongodb'
import { expect, it } from 'vitest'
import { renamedTo } from '../../src/mongo/collection-name.ts'
import { sizeOf } from '../../src/mongo/sample.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { failPoint } from '../support/fail-point.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()

it('returns the size and the new name of a collection that is renamed during the command', async () => {
  const db = one.client.db('app')
  await db.collection('before').insertOne({ a: 1 })
  const [listed] = await db.listCollections({ name: 'before' }).toArray()
  const uuid = fromUuid((listed as CollectionInfo).info?.uuid as Binary)
  await db.renameCollection('before', 'after')
  await using _ = await failPoint(
    one.client,
    'failCommand',
    { failCommands: ['aggregate'], errorCode: 26 },
    { times: 1 },
  )

  const size = sizeOf(one.cluster, { database: 'app', name: 'before', uuid })

  await expect(size.catch(renamedTo)).resolves.toBe('after')
})
