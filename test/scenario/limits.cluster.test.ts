import { describe, expect, it } from 'vitest'
import { compareClusters } from '../support/compare.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** `PATCH /api/v1/limits` and the back-off from an overloaded destination, during a real copy. */

const pair = pairedSets()
const KiB = 1024
/** The copy consists of 800 documents of 32 KiB. It takes 25 seconds at the lowest rate that tandem accepts. */
const documents = 800
const documentBytes = 32 * KiB
const total = documents * documentBytes

async function fill(): Promise<void> {
  const text = 'x'.repeat(documentBytes)
  await pair.sourceClient
    .db('app')
    .collection<{ _id: number; text: string }>('things')
    .insertMany(Array.from({ length: documents }, (_, _id) => ({ _id, text })))
}

async function limit(tandem: Tandem, body: unknown): Promise<unknown> {
  const response = await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body: JSON.stringify(body) })
  expect(response.status).toBe(200)
  return ((await response.json()) as { limits: unknown }).limits
}

const copied = (tandem: Tandem) =>
  tandem.waitFor(({ collectionCopy }) => (collectionCopy?.estimatedCopiedBytes ?? 0) > 0, {
    timeoutSeconds: 30,
    what: 'copying',
  })

async function commitEqual(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  await tandem.post('commit')
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  const { differences } = await compareClusters(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
}

describe('limits', () => {
  it('bound the rate of the copy when they are set before the start, also after a restart, until they are removed', async () => {
    await fill()
    const bytesPerSecond = 1024 * KiB
    const began = performance.now()
    {
      await using tandem = await pair.startInstance()
      await limit(tandem, { bytesPerSecond, readConcurrency: 2 })
      expect((await tandem.progress()).state).toBe('IDLE')
      await startSync(tandem)
      const { limits } = await copied(tandem)
      expect(limits).toEqual({ bytesPerSecond, readConcurrency: 2, writeConcurrency: 4 })
      await tandem.kill9()
    }
    await using tandem = await pair.startInstance()
    const { collectionCopy, limits, info } = await copied(tandem)
    expect(limits).toEqual({ bytesPerSecond, readConcurrency: 2, writeConcurrency: 4 })
    expect(info).toBe('collection copy')
    const seconds = (performance.now() - began) / 1_000
    // The rate bounds the copied bytes. The first batches of both processes, and those that the restart repeats, may exceed it.
    expect(collectionCopy?.estimatedCopiedBytes).toBeLessThan(bytesPerSecond * seconds + 4 * 1024 * KiB)
    expect(collectionCopy?.estimatedCopiedBytes).toBeLessThan(total)
    await limit(tandem, { bytesPerSecond: null, readConcurrency: null })
    await commitEqual(tandem)
    expect(await tandem.progress()).not.toHaveProperty('limits')
  })

  it('do not delay a pause', async () => {
    await fill()
    await using tandem = await pair.startInstance()
    await limit(tandem, { bytesPerSecond: 1024 * KiB })
    await startSync(tandem)
    await copied(tandem)
    const began = performance.now()
    expect((await tandem.post('pause')).status).toBe(200)
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(performance.now() - began).toBeLessThan(10_000)
    await limit(tandem, { bytesPerSecond: null })
    expect((await tandem.post('resume')).status).toBe(200)
    await commitEqual(tandem)
  })
})

describe('a destination that takes seconds for a write', () => {
  it('makes the copy back off; progress shows the reason, and the clusters are equal after the commit', async () => {
    await fill()
    const slow = { failCommands: ['insert'], blockConnection: true, blockTimeMS: 6_000, namespace: 'app.things' }
    await using point = await failPoint(pair.destinationClient, 'failCommand', slow)
    await using tandem = await pair.startInstance()
    await startSync(tandem)
    const { limits } = await tandem.waitFor((progress) => progress.limits?.backedOff !== undefined, {
      timeoutSeconds: 30,
      what: 'backed off',
    })
    expect(limits?.writeConcurrency).toBe(4)
    expect(limits?.backedOff?.writeConcurrency).toBeLessThan(4)
    expect(limits?.backedOff?.reason).toBe('the destination takes several seconds to write a batch of the copy')
    expect(Date.parse(limits?.backedOff?.since ?? '')).toBeLessThanOrEqual(Date.now())
    await point.release()
    await tandem.waitFor((progress) => progress.limits === undefined, { timeoutSeconds: 90, what: 'at full speed' })
    await commitEqual(tandem)
  })
})
