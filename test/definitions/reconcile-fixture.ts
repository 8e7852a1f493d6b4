import { Int32 } from 'mongodb'
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import { idElementOf } from '../../src/documents/identity.ts'
import { TwoClusters } from '../apply/two-clusters.ts'
import { rawDocument } from '../support/bson-values.ts'

export let clusters: TwoClusters
export let database: string
let count = 0

/** Provides two clusters for a test file, and gives each of its tests its own database. */
export function useTwoClusters(): void {
  beforeAll(async () => {
    clusters = await TwoClusters.start()
  })

  beforeEach(() => {
    database = `app${count++}`
  })

  afterEach(async () => {
    await clusters.destinationClient.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
    clusters.context.retried.length = 0
  })

  afterAll(async () => {
    await clusters?.stop()
  })
}

export const source = () => clusters.sourceClient.db(database)
export const destination = () => clusters.destinationClient.db(database)

export async function createOnBoth(name: string, options = {}): Promise<void> {
  await Promise.all([source(), destination()].map((db) => db.createCollection(name, options)))
}

export const idElements = (documents: Buffer[]) => documents.map((document) => Buffer.from(idElementOf(document)))
export const numbered = (from: number, to: number, text = 'x') =>
  Array.from({ length: to - from }, (_, at) =>
    rawDocument([
      ['_id', new Int32(from + at)],
      ['text', text],
    ]),
  )
