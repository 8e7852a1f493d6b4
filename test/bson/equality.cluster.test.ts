import type { Db } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { nested, rawDocument, updateRaw } from '../support/bson-values.ts'
import { canCommit, commit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { elementMap } from '../support/compare-raw.ts'
import { holdCopy } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { type ChangeScenario, documentOf, ids, large, values } from './change-scenarios.ts'
import { nearValues } from './every-value.ts'

/**
 * Every BSON value arrives byte for byte, whether it is copied or inserted, updated, replaced or deleted during a sync. The embedded
 * verifier and `tandem verify` report it as equal, and report every value that is only nearly equal.
 */

const pair = pairedSets({ source: { oplogSizeMB: 2048 }, destination: { oplogSizeMB: 2048 } })

const caseless = { locale: 'en', strength: 1, numericOrdering: true } as const
const small: ChangeScenario[] = [values, ids('ids', { collated: false, create: {} })]
const all: ChangeScenario[] = [
  ...small,
  ids('clustered ids', { collated: false, create: { clusteredIndex: { key: { _id: 1 }, unique: true } } }),
  ids('collated ids', { collated: true, create: { collation: caseless } }),
  large,
]

const everyType = [...Array.from({ length: 19 }, (_, at) => at + 1), 127, 255]

async function running(options: Record<string, unknown> = {}): Promise<Tandem> {
  const tandem = await pair.startInstance()
  await startSync(tandem, options)
  return tandem
}

async function expectEqual(): Promise<void> {
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

/** Returns documents as bytes by `_id`. */
async function stored(db: Db): Promise<Map<string, Buffer>> {
  const found = await db.collection('values').find({}, { raw: true }).toArray()
  return new Map(
    found.map((one) => {
      const bytes = Buffer.from(one as unknown as Uint8Array)
      const id = elementMap(bytes).get('_id') as Buffer
      return [id.toString('utf8', 5, id.length - 1), bytes]
    }),
  )
}

describe('README: every BSON value', () => {
  test('is equal byte for byte after the copy, and after changes during or after the copy, in documents of up to 16 MiB', async () => {
    const [early, late] = [pair.sourceClient.db('early'), pair.sourceClient.db('late')]
    for (const scenario of all) await scenario.prepare(late)
    for (const scenario of small) await scenario.prepare(early)
    await early.collection('held').insertOne({})
    await using copy = await holdCopy(pair.destinationClient, 'early.held')
    await using tandem = await running()
    await copy.reached()
    for (const scenario of small) await scenario.change(early)
    const arrived = pair.destinationClient.db('early').collection<{ _id: string }>('values')
    const countArrived = () => arrived.countDocuments({ _id: /^comes/ })
    await expect.poll(countArrived, { timeout: 30_000 }).toBe(2 * nearValues.length)
    expect(await tandem.progress()).toMatchObject({ info: 'collection copy', canCommit: false })
    await copy.release()

    await canCommit(tandem)
    for (const scenario of all) await scenario.change(late)
    await commit(tandem)
    await expectEqual()

    // The test compares the documents with the bytes that it has written, not only with the source.
    const documents = await stored(pair.destinationClient.db('late'))
    const types = new Set<number | undefined>()
    for (const [what, value] of nearValues) {
      for (const id of [`stays ${what}`, `comes ${what}`, `replaced ${what}`]) {
        expect(documents.get(id), id).toEqual(documentOf(id, value))
      }
      types.add(elementMap(documents.get(`set ${what}`) as Buffer).get('v')?.[0])
    }
    expect([...types].sort((a = 0, b = 0) => a - b)).toEqual(everyType)
  })

  test('is distinguished from nearly equal values: the verifier and verify name each difference, and repair removes it', async () => {
    const db = pair.sourceClient.db('app')
    await values.prepare(db)
    await using tandem = await running({ enableUserWriteBlocking: 'none' })
    await canCommit(tandem)
    for (const [what, , other] of nearValues) {
      const change = rawDocument([['$set', nested([['v', other]])]])
      await updateRaw(pair.destinationClient.db('app'), 'values', [[`stays ${what}`, change]])
    }
    expect(await tandem.post('commit')).toMatchObject({ status: 200 })
    const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 60, what: 'FAILED' })
    expect(failure?.error).toBe('VerificationFailed')
    const answer = await fetch(`${tandem.url}/api/v1/verification/mismatches`)
    const { mismatches } = (await answer.json()) as { mismatches: { id: string; kind: string; field?: string }[] }
    const names = nearValues.map(([what]) => `stays ${what}`).sort()
    expect(mismatches.map(({ id }) => id).sort()).toEqual(names)
    expect(mismatches.filter(({ kind }) => kind !== 'content')).toEqual([])
    const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { maxDifferences: 1_000 })
    const named = (by: RegExp) => differences.filter((line) => by.test(line)).length
    expect([named(/^verify: .*differs at v/), named(/document differs/)]).toEqual([names.length, names.length])

    expect(await tandem.post('repair')).toMatchObject({ status: 200 })
    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    await committed(tandem)
    await expectEqual()
  })
})
