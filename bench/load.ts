import { BSON, ObjectId } from 'mongodb'
import { insertRaw } from './raw-insert.ts'
import { database, type Server } from './servers.ts'
import { TextPool } from './text.ts'

export interface Shape {
  name: '1k' | 'collections' | '10k'
  title: string
  collections: number
  /** Number of documents in each collection. */
  documents: number
  documentBytes: number
}

export const shapes: [Shape, ...Shape[]] = [
  { name: '1k', title: 'one collection, 1 KB', collections: 1, documents: 1_000_000, documentBytes: 1_024 },
  { name: 'collections', title: '20 collections, 1 KB', collections: 20, documents: 50_000, documentBytes: 1_024 },
  { name: '10k', title: 'one collection, 10 KB', collections: 1, documents: 200_000, documentBytes: 10_240 },
]

const batchBytes = 4 * 1024 * 1024
const insertsAtOnce = 4
const poolCharacters = 4_000_000

/** Fills the source with documents of equal size and ascending ObjectIds, as applications insert them. */
export async function load(source: Pick<Server, 'client'>, shape: Shape): Promise<void> {
  const nextDocument = documentMaker(shape.documentBytes)
  const perBatch = Math.floor(batchBytes / shape.documentBytes)
  for (let number = 0; number < shape.collections; number++) {
    let left = shape.documents
    const insertBatches = async (): Promise<void> => {
      while (left > 0) {
        const count = Math.min(perBatch, left)
        left -= count
        const documents = Array.from({ length: count }, nextDocument)
        await insertRaw(source.client.db(database), `c${number}`, documents, 1)
      }
    }
    await Promise.all(Array.from({ length: insertsAtOnce }, insertBatches))
  }
}

/**
 * Encodes one document as a template. Each document is a copy of the template's bytes into which its own values are
 * written.
 */
export function documentMaker(bytes: number): () => Buffer {
  const pool = new TextPool('load', poolCharacters)
  const poolBytes = Buffer.from(pool.text, 'latin1')
  const fields = { _id: new ObjectId(), number: 0, at: new Date(), score: 0.5, open: true, text: '' }
  const textLength = bytes - BSON.calculateObjectSize(fields)
  const template = Buffer.from(BSON.serialize({ ...fields, text: ' '.repeat(textLength) }))
  const positionOf = (name: keyof typeof fields): number => template.indexOf(`${name}\0`, 4, 'latin1') + name.length + 1
  const [id, number, at, score] = [positionOf('_id'), positionOf('number'), positionOf('at'), positionOf('score')]
  const text = positionOf('text') + 4
  const began = Date.now()
  let made = 0
  return () => {
    const document = Buffer.from(template)
    made += 1
    document.writeUIntBE(made, id + 9, 3)
    document.writeInt32LE(made, number)
    document.writeBigInt64LE(BigInt(began + made), at)
    document.writeDoubleLE(Math.sin(made), score)
    const from = pool.offsetFor(textLength)
    poolBytes.copy(document, text, from, from + textLength)
    return document
  }
}
