import { afterEach, describe, expect, test } from 'vitest'
import { serveApi } from '../../src/api/server.ts'
import { runClient } from '../../src/cli/client.ts'
import type { ClientRequest } from '../../src/cli/client-options.ts'
import type { CollectionRow } from '../../src/domain/collection-figures.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import type { InstanceRow } from '../../src/domain/instances.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

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
  const out = (line: string) => void printed.push(line)
  const exitCode = await runClient({ body: { inline: {} }, ...request }, { out, err: out, width })
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
  test('prints a table of all instances and their totals on a terminal', async () => {
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

  test('prints the JSON of the API without a terminal, unless a table is requested', async () => {
    const { url } = await servedInstance([a])
    const { printed } = await run({ command: 'instances', urls: [url] }, null)
    expect(JSON.parse(printed.join('\n'))).toMatchObject({ success: true, instances: [{ mongosyncID: 'shardA' }] })
    expect((await run({ command: 'instances', urls: [url], form: 'json' }, 120)).printed).toEqual(printed)
    expect((await run({ command: 'instances', urls: [url], form: 'table' }, null)).printed[0]).toMatch(/^instance/)
  })

  test('shows what each instance reports about itself, not what the others report about it, and names the instances that did not answer', async () => {
    const stale = { ...b, lastSeenSeconds: 6, progress: { ...b.progress, totalEventsApplied: 1 } }
    const [one, two] = [await servedInstance([a, stale]), await servedInstance([{ ...a, lastSeenSeconds: 1 }, b])]
    const { exitCode, printed } = await run({ command: 'instances', urls: [one.url, two.url, unreachable] }, 120)
    expect(exitCode).toBe(5)
    expect(printed).toHaveLength(5)
    expect(printed[2]).toMatch(/^shardB .* 1,840 {2}1$/)
    expect(printed[4]).toMatch(/^error: InstanceUnreachable: no instance answers at http:\/\/127\.0\.0\.1:1 /)
  })

  test('prints only the reason, without a table, when no instance answers', async () => {
    const { exitCode, printed } = await run({ command: 'instances', urls: [unreachable] }, 120)
    expect(exitCode).toBe(5)
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

  test('prints one table on a terminal, also for several addresses, because each instance reports the whole sync', async () => {
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

  test('says which collections converge', async () => {
    const { instance, url } = await servedInstance([])
    const [, copying] = rows as [CollectionRow, CollectionRow]
    instance.collectionRows = [{ ...copying, copy: { ...copying.copy, converging: true } }]
    const { printed } = await run({ command: 'collections', urls: [url] }, 120)
    expect(printed[1]).toMatch(/^shop\.orders +converging, 0 B \/ 4\.0 kB /)
  })

  test('shows the requested page, and says that there are more collections', async () => {
    const urls = [await servedCollections()]
    const { printed } = await run({ command: 'collections', urls, query: { limit: '1', after: '2' } }, 120)
    expect(printed).toHaveLength(3)
    expect(printed[1]).toMatch(/^shop\.off .* off +-$/)
    expect(printed[2]).toBe('2 of 3 collections are not on this page; --limit and --after show others')
    const json = await run({ command: 'collections', urls, query: { limit: '1' }, form: 'json' }, 120)
    expect(JSON.parse(json.printed.join('\n'))).toMatchObject({ total: 3, collections: [{ mismatches: 2 }] })
  })

  test('prints the refusal of the API for a page that is not a number', async () => {
    const { exitCode, printed } = await run(
      { command: 'collections', urls: [await servedCollections()], query: { limit: 'x' } },
      120,
    )
    expect(exitCode).toBe(4)
    expect(printed).toEqual([expect.stringMatching(/InvalidRequest: limit: must be a whole number/)])
  })
})

describe('tandem progress of several instances', () => {
  test('prints the table of instances without the column for partitions', async () => {
    const [one, two, idle] = [await servedInstance([a]), await servedInstance([b]), await servedInstance([])]
    const { exitCode, printed } = await run(
      { command: 'progress', urls: [one.url, two.url, idle.url, unreachable] },
      140,
    )
    expect(exitCode).toBe(5)
    expect(printed[0]).not.toContain('partitions')
    expect(printed[1]).toMatch(/^shardA +coordinator +alive +RUNNING +1\.0 MB \/ 4\.0 MB +25\.00 % +3 s +1,840$/)
    expect(printed[2]).toMatch(/^shardB +alive +RUNNING/)
    // The idle instance has no mongosyncID yet, so the table shows its address.
    expect(printed[3]).toMatch(new RegExp(`^${idle.url.slice(7)} +alive +IDLE +- +- +-$`))
    expect(printed[4]).toMatch(/^127\.0\.0\.1:1 +InstanceUnreachable/)
    expect(printed[5]).toMatch(/^total +2\.0 MB \/ 4\.0 MB +50\.00 % +3 s +3,680$/)
  })

  test('prints a message that does not fit into a cell once and in full below the table, and shortens a long name', async () => {
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
      `${long}: DuplicateKey: zoo.animals: remove one of the two (nothing is lost; see docs/troubleshooting.md#duplicatekey)`,
    ])
  })

  test('prints no escape sequence to the terminal', async () => {
    const evil = row('\u001b[2Jevil\n')
    const [one, two] = [await servedInstance([evil]), await servedInstance([b])]
    const { printed } = await run({ command: 'progress', urls: [one.url, two.url] }, 120)
    expect(printed[1]).toMatch(/^\\u001b\[2Jevil\\u000a/)
  })

  test('prints indented JSON for one instance, also on a terminal', async () => {
    const { url } = await servedInstance([a])
    const { printed } = await run({ command: 'progress', urls: [url] }, 120)
    expect(JSON.parse(printed.join('\n'))).toMatchObject({ progress: { mongosyncID: 'shardA' } })
  })
})

test('the warnings of a start are printed in full below the table, and not in its cells', async () => {
  const { url, instance } = await servedInstance([])
  const warning = 'the source is not blocked. '.repeat(9).trim()
  instance.startWarnings = [warning]
  const body = { inline: minimalStart }
  const { exitCode, printed } = await run({ command: 'start', urls: [url], body, form: 'table' }, 80)
  expect(exitCode).toBe(0)
  expect(printed.slice(1)).toEqual([`${url.slice(7)}  success`, `${url}: warning: ${warning}`])
})

test('a command to several instances shows which instances accepted it, and the full reason of a refusal', async () => {
  const [one, two] = [await servedInstance([]), await servedInstance([])]
  two.instance.answer = () =>
    Promise.reject(new RefusedError('ConfigurationMismatch', 'buildIndexes: is never elsewhere'))
  const { exitCode, printed } = await run({ command: 'pause', urls: [one.url, two.url] }, 120)
  expect(exitCode).toBe(4)
  expect(printed[1]).toMatch(new RegExp(`^${one.url.slice(7)} +success$`))
  expect(printed[2]).toMatch(new RegExp(`^${two.url.slice(7)} +ConfigurationMismatch$`))
  expect(printed[3]).toBe(
    `${two.url}: ConfigurationMismatch: buildIndexes: is never elsewhere (nothing is lost; see docs/troubleshooting.md#configurationmismatch)`,
  )
  const mismatches = await run({ command: 'mismatches', urls: [one.url, two.url] }, 120)
  expect(mismatches.printed.map((line) => JSON.parse(line))).toMatchObject([{ total: 0 }, { total: 0 }])
})
