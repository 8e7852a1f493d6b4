/**
 * The baseline of the copy: a tuned version of a program that an engineer writes in an hour. It has two readers and four
 * writers, and copies raw bytes with majority-acknowledged writes. It stores no progress, so it cannot resume, and it ignores
 * concurrent changes.
 *
 *   reader ─┐                     ┌─▶ writer
 *   reader ─┴─▶ a few batches ────┼─▶ writer
 *                                 ├─▶ writer
 *                                 └─▶ writer
 */
import { type Db, type Document, type Filter, MongoClient } from 'mongodb'
import { serveParent } from './child-work.ts'
import { insertRaw } from './raw-insert.ts'

const readers = 2
const writers = 4
const readBatchDocuments = 4_000
const insertDocumentsMax = 2_000
const insertBytesMax = 8_000_000
const waitingMax = 4

interface Range {
  collection: string
  filter: Filter<Document>
}

interface Batch {
  collection: string
  documents: Buffer[]
}

await serveParent(
  async ({ source, destination, database }: { source: string; destination: string; database: string }) => {
    const [from, to] = await Promise.all([MongoClient.connect(source), MongoClient.connect(destination)])
    return () => copy(from.db(database), to.db(database))
  },
)

async function copy(source: Db, destination: Db): Promise<{ documents: number }> {
  const ranges = await split(source)
  const queue = new BoundedQueue<Batch>(waitingMax)
  const written = Array.from({ length: writers }, async () => {
    let documents = 0
    for (let batch = await queue.take(); batch; batch = await queue.take()) {
      await insertRaw(destination, batch.collection, batch.documents, 'majority')
      documents += batch.documents.length
    }
    return documents
  })
  const read = Array.from({ length: readers }, async () => {
    for (let range = ranges.shift(); range; range = ranges.shift()) {
      for await (const documents of readRange(source, range)) {
        await queue.put({ collection: range.collection, documents })
      }
    }
  })
  await Promise.race([Promise.all(read), Promise.all(written)]) // If a writer fails, the readers must not wait forever.
  queue.end()
  const counts = await Promise.all(written)
  return { documents: counts.reduce((sum, count) => sum + count, 0) }
}

/**
 * Returns whole collections if there are at least as many as readers. Otherwise divides each into two halves at the median
 * of a sample.
 */
async function split(source: Db): Promise<Range[]> {
  const listed = await source.listCollections({}, { nameOnly: true }).toArray()
  const names = listed.map(({ name }) => name)
  if (names.length >= readers) return names.map((collection) => ({ collection, filter: {} }))
  const ranges: Range[] = []
  for (const collection of names) {
    const pipeline = [{ $sample: { size: 101 } }, { $project: { _id: 1 } }, { $sort: { _id: 1 } }]
    const sample = await source.collection(collection).aggregate(pipeline).toArray()
    const middle = sample[sample.length >> 1]?.['_id']
    ranges.push({ collection, filter: { _id: { $lt: middle } } }, { collection, filter: { _id: { $gte: middle } } })
  }
  return ranges
}

async function* readRange(source: Db, { collection, filter }: Range): AsyncGenerator<Buffer[]> {
  const cursor = source.collection(collection).find(filter, { raw: true, batchSize: readBatchDocuments })
  if ('_id' in filter) cursor.hint({ _id: 1 })
  let documents: Buffer[] = []
  let bytes = 0
  while (await cursor.hasNext()) {
    for (const document of cursor.readBufferedDocuments() as unknown as Buffer[]) {
      documents.push(document)
      bytes += document.length
      if (documents.length < insertDocumentsMax && bytes < insertBytesMax) continue
      yield documents
      documents = []
      bytes = 0
    }
  }
  if (documents.length > 0) yield documents
}

/** A bounded queue between readers and writers. */
class BoundedQueue<Item> {
  readonly #items: Item[] = []
  readonly #max: number
  #waiting: (() => void)[] = []
  #ended = false

  constructor(max: number) {
    this.#max = max
  }

  async put(item: Item): Promise<void> {
    while (this.#items.length >= this.#max) await this.#change()
    this.#items.push(item)
    this.#wake()
  }

  /** Returns the next item, or undefined when the readers have ended and the queue is empty. */
  async take(): Promise<Item | undefined> {
    while (this.#items.length === 0 && !this.#ended) await this.#change()
    const item = this.#items.shift()
    this.#wake()
    return item
  }

  end(): void {
    this.#ended = true
    this.#wake()
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }
}
