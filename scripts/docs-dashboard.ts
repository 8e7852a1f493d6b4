/**
 * Takes the screenshot docs/dashboard.png: `npm run docs:dashboard`. Two instances sync a shop between two replica sets while
 * an application writes to it. The screenshot is taken in the middle of the first verification. The rate of the instances is
 * limited, so that the charts have a history by then. The script takes about four minutes on an idle machine.
 */
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Db, MongoClient } from 'mongodb'
import { launchBrowser, type OpenedPage, openDashboard } from '../test/dashboard/browser.ts'
import { expectAccepted, startInstances } from '../test/support/instances.ts'
import { repositoryRoot } from '../test/support/mongo-binaries.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'

const bytesPerSecond = 1_600_000
const operationsAtOnce = 15
const roundIntervalMS = 100
/**
 * Rounds from one burst to the next. A burst lasts a tenth of these rounds. During a burst, the application writes ten times
 * as much, so that the charts show more than a straight line.
 */
const roundsBetweenBursts = 150
/** The application updates this many sessions and inserts none, so all parts of the page show the same number of documents. */
const sessions = 2_000
/** The share of documents that are compared when the screenshot is taken. */
const verifiedShare = 0.6

/** Names and sizes of the collections. Each document has a text of about `bytes`. */
const collections = [
  { name: 'orders', documents: 160_000, bytes: 700, index: { customer: 1 } as const, unique: false },
  { name: 'customers', documents: 60_000, bytes: 500, index: { email: 1 } as const, unique: true },
  { name: 'reviews', documents: 40_000, bytes: 900, index: { product: 1, at: -1 } as const, unique: false },
  { name: 'products', documents: 6_000, bytes: 1_500, index: { sku: 1 } as const, unique: true },
]

async function load(database: Db): Promise<void> {
  for (const { name, documents, bytes, index, unique } of collections) {
    const text = 'x'.repeat(bytes)
    for (let from = 0; from < documents; from += 5_000) {
      const batch = Array.from({ length: Math.min(5_000, documents - from) }, (_, at) => documentOf(from + at, text))
      await database.collection<{ _id: number }>(name).insertMany(batch)
    }
    await database.collection(name).createIndex(index, { unique })
  }
  const renewed = Array.from({ length: sessions }, (_, _id) => ({ _id, at: new Date() }))
  await database.collection<{ _id: number }>('sessions').insertMany(renewed)
  await database.collection('sessions').createIndex({ at: 1 }, { expireAfterSeconds: 86_400 })
}

function documentOf(number: number, text: string) {
  const fields = { customer: number % 9_973, email: `${number}@example.com`, product: number % 997, sku: `S${number}` }
  return { _id: number, ...fields, at: new Date(), text }
}

/** Writes until it is stopped. Returns a function that stops it and rejects if a write failed. */
function writeSteadily(database: Db): () => Promise<void> {
  let running = true
  let number = 0
  const round = async (operations: number): Promise<void> => {
    const updates = Array.from({ length: operations }, () => {
      number += 1
      return { updateOne: { filter: { _id: (number * 7_919) % 160_000 }, update: { $set: { paid: number } } } }
    })
    await database.collection<{ _id: number }>('orders').bulkWrite(updates, { ordered: false })
    const renewal = { $set: { at: new Date(), number } }
    await database.collection<{ _id: number }>('sessions').updateOne({ _id: number % sessions }, renewal)
  }
  const written = (async () => {
    for (let at = 1; running; at++) {
      const isBurst = at % roundsBetweenBursts < roundsBetweenBursts / 10
      await round(isBurst ? 10 * operationsAtOnce : operationsAtOnce)
      await sleep(roundIntervalMS)
    }
  })()
  return async () => {
    running = false
    await written
  }
}

await using source = await startReplicaSet({ name: 'cluster0', oplogSizeMB: 990 })
await using destination = await startReplicaSet({ name: 'cluster1', oplogSizeMB: 990 })
await using client = await MongoClient.connect(source.uri)
const shop = client.db('shop')
await load(shop)
const instances = await startInstances(['tandem-1', 'tandem-2'], { cluster0: source.uri, cluster1: destination.uri })
const browser = await launchBrowser()
const stopWriting = writeSteadily(shop)
let opened: OpenedPage | null = null
try {
  await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
  for (const { url } of instances.members.values()) {
    const body = JSON.stringify({ bytesPerSecond })
    const response = await fetch(`${url}/api/v1/limits`, { method: 'PATCH', body })
    if (!response.ok) throw new Error(`limits answered ${response.status}`)
  }
  const [one] = instances.members.values()
  if (!one) throw new Error('no instance runs')
  opened = await openDashboard(browser, `${one.url}/`, {
    viewport: { width: 1_280, height: 900 },
    deviceScaleFactor: 1.5,
  })
  expectAccepted(
    await instances.post('start', {
      source: 'cluster0',
      destination: 'cluster1',
      reversible: true,
      enableUserWriteBlocking: 'sourceAndDestination',
    }),
  )
  const coordinator = await instances.coordinator()
  await coordinator.waitFor(
    ({ verification }) => {
      const side = verification?.source
      return side !== undefined && side.hashedDocumentCount > verifiedShare * side.estimatedDocumentCount
    },
    { timeoutSeconds: 1_500, what: 'in the middle of the first verification' },
  )
  await opened.page.screenshot({ path: path.join(repositoryRoot, 'docs/dashboard.png'), fullPage: true })
} finally {
  await opened?.close()
  await stopWriting()
  await browser.close()
  await instances.stop()
}
