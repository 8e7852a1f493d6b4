import { afterEach, expect, test } from 'vitest'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'

/** The copied bytes of all instances add up to the total, also when one instance continues the segments of another. */

const pair = pairedSets()
const KiB = 1024
const documents = 300
const collections = ['one', 'two', 'three', 'four']
const documentBytes = 32 * KiB
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

async function limit(
  target: Instances,
  id: string,
  limits: Record<'bytesPerSecond' | 'readConcurrency', number | null>,
): Promise<void> {
  const url = `${target.members.get(id)?.url}/api/v1/limits`
  const response = await fetch(url, { method: 'PATCH', body: JSON.stringify(limits) })
  expect(response.status).toBe(200)
}

test('a paused instance does not report the copied bytes of segments that another instance has taken over', async () => {
  const text = 'x'.repeat(documentBytes)
  const contents = Array.from({ length: documents }, (_, _id) => ({ _id, text }))
  for (const name of collections) {
    await pair.sourceClient.db('app').collection<{ _id: number; text: string }>(name).insertMany(contents)
  }
  const running = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  instances = running
  await running.allReach(({ state }) => state === 'IDLE', 'IDLE')
  for (const id of ['a', 'b']) await limit(running, id, { bytesPerSecond: 1024 * KiB, readConcurrency: 1 })
  expectAccepted(await running.post('start', { source: 'cluster0', destination: 'cluster1' }))
  await running.allReach(
    ({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 64 * KiB,
    'copying on each instance',
  )
  const [a, b] = [running.members.get('a'), running.members.get('b')]
  if (!a || !b) throw new Error('one of the two instances is missing')
  expect((await b.post('pause')).status).toBe(200)
  await b.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
  const atPause = (await b.progress()).collectionCopy?.estimatedCopiedBytes
  await limit(running, 'a', { bytesPerSecond: null, readConcurrency: null })
  const excessBytes = async (): Promise<number> => {
    const { totals } = await running.instances(a)
    return totals.estimatedCopiedBytes - totals.estimatedTotalBytes
  }
  await expect.poll(excessBytes, { timeout: 30_000 }).toBe(0)
  expect((await b.progress()).collectionCopy?.estimatedCopiedBytes).toBeLessThan(atPause ?? 0)
  expect((await b.post('resume')).status).toBe(200)
  await running.allReach(({ canCommit }) => canCommit, 'ready to commit')
  await expect.poll(async () => (await running.instances(a)).totals.percent).toBe(100)
  expect(await excessBytes()).toBe(0)
})
