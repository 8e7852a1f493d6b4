import type { IndexDescription } from 'mongodb'
import { documentMaker } from './load.ts'
import { insertRaw } from './raw-insert.ts'
import { database, type Server } from './servers.ts'

const creatorsAtOnce = 8

export interface SmallCollections {
  collections: number
  documentsInEach: number
  documentBytes: number
  indexesOfEach: IndexDescription[]
}

/**
 * Fills the source with equal collections. Each collection's indexes are created while it is empty, because that is
 * cheap.
 */
export async function createCollections({ client }: Server, shape: SmallCollections): Promise<void> {
  const db = client.db(database)
  const nextDocument = documentMaker(shape.documentBytes)
  let created = 0
  const createSome = async (): Promise<void> => {
    while (created < shape.collections) {
      const name = `c${created++}`
      // The server rejects a `createIndexes` command without indexes.
      if (shape.indexesOfEach.length > 0) await db.collection(name).createIndexes(shape.indexesOfEach)
      await insertRaw(db, name, Array.from({ length: shape.documentsInEach }, nextDocument), 1)
    }
  }
  await Promise.all(Array.from({ length: creatorsAtOnce }, createSome))
}

/**
 * Returns `count` indexes in addition to the index on `_id`. The first `unique` of them are unique. The documents
 * satisfy the unique indexes, because each document has a different `number`.
 */
export const indexes = (count: number, unique = 0): IndexDescription[] =>
  Array.from({ length: count }, (_, at) => ({
    key: { number: 1, [`field${at}`]: 1 },
    name: `index${at}`,
    ...(at < unique ? { unique: true } : {}),
  }))
