import { afterEach, describe, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import type { CollectionRow } from '../../src/domain/collection-figures.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import type { InstanceRow } from '../../src/domain/instances.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

const unreachable = 'http://127.0.0.1:1'

async function servedInstance(rows: InstanceRow[]) {
  const { api, instance } = apiUnderTest()
  instance.rows = rows
  instance.shown = rows[0]?.progress ?? idleProgress
  const server = await serveApi({ api, port: 0 })
  closers.push(server.close)
  return { instance, url: `http://127.0.0.1:${server.port}` }
}

async function run(request: Partial<ClientRequest> & Pick<ClientRequest, 'command' | 'urls'>, width: number | null) {
  const printed: string[] = []
  const exitCode = await runClient({ body: { inline: {} }, ...request }, (line) => printed.push(line), width)
  return { exitCode, printed }
}

function row(mongosyncID: string, over: Partial<InstanceRow> = {}): InstanceRow {
  return {
    mongosyncID,
    coordinator: mongosyncID === 'shardA',
    status: 'alive',
    lastSeenSeconds: 0,
    partitions: [0, 2],
    progress: {
      ...idleProgress,
      state: 'RUNNING',
      lagTimeSeconds: 3,
      totalEventsApplied: 1_840,
      collectionCopy: { estimatedTotalBytes: 4_000_000, estimatedCopiedBytes: 1_000_000 },
      mongosyncID,
      coordinatorID: 'shardA',
    },
    ...over,
  }
}
const [a, b] = [row('shardA'), row('shardB', { partitions: [1] })]
const lost = row('shardC', {
  status: 'lost',
  lastSeenSeconds: 14,
  partitions: [],
  progress: {
    ...b.progress,
    lagTimeSeconds: 99,
    collectionCopy: { estimatedTotalBytes: 4_000_000, estimatedCopiedBytes: 0 },
  },
})

describe('tandem instances', () => {
  test('on a terminal is a table of all of them and their totals', async () => {
    const { url } = await servedInstance([a, b, lost])
    expect(await run({ command: 'instances', urls: [url] }, 120)).toEqual({
      exitCode: 0,
      printed: [
        'instance  role         status      state                      copied   lag  events  partitions',
        'shardA    coordinator  alive       RUNNING  1.0 MB / 4.0 MB  25.00 %   3 s   1,840  0 2',
        'shardB                 alive       RUNNING  1.0 MB / 4.0 MB  25.00 %   3 s   1,840  1',
        'shardC                 lost, 14 s  RUNNING     0 B / 4.0 MB   0.00 %  99 s   1,840',
        'total                                       2.0 MB / 4.0 MB  50.00 %   3 s   5,520',
      ],
    })
  })

  test('without a terminal is JSON as the API has it, unless a table is asked for', async () => {
    const { url } = await servedInstance([a])
    const { printed } = await run({ command: 'instances', urls: [url] }, null)
    expect(JSON.parse(printed.join('\n'))).toMatchObject({ success: true, instances: [{ mongosyncID: 'shardA' }] })
    expect((await run({ command: 'instances', urls: [url], form: 'json' }, 120)).printed).toEqual(printed)
    expect((await run({ command: 'instances', urls: [url], form: 'table' }, null)).printed[0]).toMatch(/^instance/)
  })

  test('of several answers takes what each reports of itself, and names the instances that did not answer', async () => {
    const stale = { ...b, lastSeenSeconds: 6, progress: { ...b.progress, totalEventsApplied: 1 } }
    const [one, two] = [await servedInstance([a, stale]), await servedInstance([{ ...a, lastSeenSeconds: 1 }, b])]
    const { exitCode, printed } = await run({ command: 'instances', urls: [one.url, two.url, unreachable] }, 120)
    expect(exitCode).toBe(1)
    expect(printed).toHaveLength(5)
    expect(printed[2]).toMatch(/^shardB .* 1,840 {2}1$/)
    expect(printed[4]).toMatch(/^http:\/\/127\.0\.0\.1:1: InstanceUnreachable: no instance answers/)
  })

  test('when no instance answers there is no table, only the reason', async () => {
    const { exitCode, printed } = await run({ command: 'instances', urls: [unreachable] }, 120)
    expect(exitCode).toBe(1)
    expect(printed).toEqual([expect.stringMatching(/InstanceUnreachable/)])
  })
})

describe('tandem collections', () => {
  const collection = (over: Partial<CollectionRow>): CollectionRow => ({
    namespace: 'shop.orders',
    copy: {
      ended: true,
      converging: false,
      estimatedTotalBytes: 4_000_000,
      estimatedCopiedBytes: 4_000_000,
      estimatedDocumentCount: 1_234,
      copiedDocumentCount: 1_234,
    },
    indexes: { total: 0, built: 0, heldBack: 0, missing: 0 },
    verification: { phase: 'stream hashing', hashedDocumentCount: 1_234, hashedRanges: 2, totalRanges: 2 },
    mismatches: 0,
    ...over,
  })
  const rows = [
    collection({ mismatches: 2, namespace: 'shop.\u001b[31m' }),
    collection({
      copy: {
        ended: false,
        converging: false,
        estimatedTotalBytes: 4_000,
        estimatedCopiedBytes: 0,
        estimatedDocumentCount: 20,
        copiedDocumentCount: 0,
      },
      indexes: { total: 3, built: 1, heldBack: 1, missing: 1 },
      verification: { phase: 'initial hashing', hashedDocumentCount: 7, hashedRanges: 2, totalRanges: 3 },
    }),
    collection({ namespace: 'shop.off', verification: null }),
  ]

  async function servedCollections() {
    const { instance, url } = await servedInstance([])
    instance.collectionRows = rows
    return url
  }

  test('on a terminal is a table, once also of several instances, which all tell of the whole sync', async () => {
    const { url: notStarted } = await servedInstance([])
    const urls = [notStarted, await servedCollections(), await servedCollections()]
    expect(await run({ command: 'collections', urls }, 120)).toEqual({
      exitCode: 0,
      printed: [
        'collection             copied  documents  indexes                       verification          mismatches',
        'shop.\\u001b[31m   4.0 MB, all      1,234  -                             stream hashing                 2',
        'shop.orders      0 B / 4.0 kB     0 / 20  1 / 3, 1 deferred, 1 missing  initial hashing 66 %           -',
        'shop.off          4.0 MB, all      1,234  -                             off                            -',
      ],
    })
  })

  test('shows the page that is asked for, and says that there is more', async () => {
    const urls = [await servedCollections()]
    const { printed } = await run({ command: 'collections', urls, query: { limit: '1', after: '2' } }, 120)
    expect(printed).toHaveLength(3)
    expect(printed[1]).toMatch(/^shop\.off .* off +-$/)
    expect(printed[2]).toBe('2 of 3 collections are not on this page; --limit and --after show others')
    const json = await run({ command: 'collections', urls, query: { limit: '1' }, form: 'json' }, 120)
    expect(JSON.parse(json.printed.join('\n'))).toMatchObject({ total: 3, collections: [{ mismatches: 2 }] })
  })

  test('of a page that is no number is the refusal of the API', async () => {
    const { exitCode, printed } = await run(
      { command: 'collections', urls: [await servedCollections()], query: { limit: 'x' } },
      120,
    )
    expect(exitCode).toBe(1)
    expect(printed).toEqual([expect.stringMatching(/InvalidRequest: limit: must be a whole number/)])
  })
})

describe('tandem progress of several instances', () => {
  test('is the same table, without partitions', async () => {
    const [one, two, idle] = [await servedInstance([a]), await servedInstance([b]), await servedInstance([])]
    const { exitCode, printed } = await run(
      { command: 'progress', urls: [one.url, two.url, idle.url, unreachable] },
      140,
    )
    expect(exitCode).toBe(1)
    expect(printed[0]).not.toContain('partitions')
    expect(printed[1]).toMatch(/^shardA +coordinator +alive +RUNNING +1\.0 MB \/ 4\.0 MB +25\.00 % +3 s +1,840$/)
    expect(printed[2]).toMatch(/^shardB +alive +RUNNING/)
    // It has no mongosyncID yet, so its address stands for it.
    expect(printed[3]).toMatch(new RegExp(`^${idle.url.slice(7)} +alive +IDLE +- +- +-$`))
    expect(printed[4]).toMatch(/^127\.0\.0\.1:1 +InstanceUnreachable/)
    expect(printed[5]).toMatch(/^total +2\.0 MB \/ 4\.0 MB +50\.00 % +3 s +3,680$/)
  })

  test('prints in full, and once, what does not fit into cells; a long name is shortened', async () => {
    const failure = { error: 'DuplicateKey' as const, errorDescription: 'zoo.animals: remove one of the two' }
    const long = 'x'.repeat(80)
    const failed = { ...b.progress, mongosyncID: long, state: 'FAILED' as const, failure, warnings: ['paused: shardD'] }
    const [one, two] = [
      await servedInstance([row('shardA', { progress: { ...a.progress, warnings: ['paused: shardD'] } })]),
      await servedInstance([row(long, { progress: failed })]),
    ]
    const { printed } = await run({ command: 'progress', urls: [one.url, two.url] }, 100)
    expect(printed[2]).toMatch(/^x+… .*FAILED/)
    for (const line of printed.slice(0, 4)) expect(line.length).toBeLessThanOrEqual(100)
    expect(printed.slice(4)).toEqual([
      `shardA, ${long}: warning: paused: shardD`,
      `${long}: DuplicateKey: zoo.animals: remove one of the two`,
    ])
  })

  test('lets no escape sequence through to the terminal', async () => {
    const evil = row('\u001b[2Jevil\n')
    const [one, two] = [await servedInstance([evil]), await servedInstance([b])]
    const { printed } = await run({ command: 'progress', urls: [one.url, two.url] }, 120)
    expect(printed[1]).toMatch(/^\\u001b\[2Jevil\\u000a/)
  })

  test('one instance is indented JSON, also on a terminal', async () => {
    const { url } = await servedInstance([a])
    const { printed } = await run({ command: 'progress', urls: [url] }, 120)
    expect(JSON.parse(printed.join('\n'))).toMatchObject({ progress: { mongosyncID: 'shardA' } })
  })
})

test('a command to several instances shows which accepted it, and in full why one did not', async () => {
  const [one, two] = [await servedInstance([]), await servedInstance([])]
  two.instance.answer = () =>
    Promise.reject(new RefusedError('ConfigurationMismatch', 'buildIndexes: is never elsewhere'))
  const { exitCode, printed } = await run({ command: 'pause', urls: [one.url, two.url] }, 120)
  expect(exitCode).toBe(1)
  expect(printed[1]).toMatch(new RegExp(`^${one.url.slice(7)} +success$`))
  expect(printed[2]).toMatch(new RegExp(`^${two.url.slice(7)} +ConfigurationMismatch$`))
  expect(printed[3]).toBe(`${two.url}: ConfigurationMismatch: buildIndexes: is never elsewhere`)
  const mismatches = await run({ command: 'mismatches', urls: [one.url, two.url] }, 120)
  expect(mismatches.printed.map((line) => JSON.parse(line))).toMatchObject([{ total: 0 }, { total: 0 }])
})
