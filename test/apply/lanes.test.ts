import { setTimeout as delay } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { Lanes } from '../../src/apply/lanes.ts'
import { fold, type Identity, identityKey } from '../../src/documents/identity.ts'
import type { Identities } from '../../src/documents/reconcile-documents.ts'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import type { ChangeEvent } from '../../src/domain/change-event.ts'
import { Watermark } from '../../src/domain/watermark.ts'

const entry = (name: string): CatalogEntry => ({
  uuid: name,
  database: 'app',
  name,
  sourceName: name,
  destinationUUID: name,
  state: 'copied',
  wanted: { options: [], indexes: [] },
  estimatedBytes: 0,
  estimatedDocuments: 0,
  refusedIndexes: [],
  awaitsIndexes: false,
  copiedBytes: 0,
  totalCopied: 0,
  endedPartitions: new Set(),
  planned: true,
  hasTombstones: false,
  converging: false,
  convergedFrom: null,
  shardKey: null,
})

const idElement = (id: number) => Buffer.from([0x10, 0x5f, 0x69, 0x64, 0, id, 0, 0, 0])
const idIn = (identity: Identity) => identity.idElement[5] as number

/** Creates an event. If it has a document, the document contains the time of the event. */
function event(kind: ChangeEvent['kind'], time: number): ChangeEvent {
  const document = kind === 'insert' || kind === 'replace' ? Buffer.from([time & 0xff, time >> 8]) : null
  return {
    kind,
    operationType: kind,
    time: BigInt(time),
    database: 'app',
    collection: 'c',
    to: null,
    uuid: 'c',
    reshardedUuid: '',
    replacedUuid: '',
    createsCapped: false,
    idElement: null,
    documentKey: null,
    idType: 0x10,
    idStart: 0,
    idEnd: 0,
    keyed: false,
    document,
  }
}

interface Sent {
  entry: CatalogEntry
  identities: Identities
  notBefore: bigint
  acknowledged: boolean
  resolve: () => void
  reject: (error: unknown) => void
}

/** Lanes whose sends the test acknowledges or rejects. */
class Bench {
  readonly watermark: Watermark<number>
  readonly lanes: Lanes<number>
  readonly underWay: Sent[] = []
  readonly sent: Sent[] = []
  readonly failures: unknown[] = []
  applied = 0

  constructor(count: number) {
    this.watermark = new Watermark<number>(count)
    this.lanes = new Lanes(
      count,
      this.watermark,
      (entry, identities, notBefore) =>
        new Promise<void>((resolve, reject) => {
          const done = () => this.underWay.splice(this.underWay.indexOf(one), 1)
          const one: Sent = {
            entry,
            identities,
            notBefore,
            acknowledged: false,
            resolve: () => {
              done()
              one.acknowledged = true
              resolve()
            },
            reject: (error) => {
              done()
              reject(error)
            },
          }
          this.underWay.push(one)
          this.sent.push(one)
        }),
      (error) => this.failures.push(error),
      (events) => {
        this.applied += events
      },
    )
  }

  /** Acknowledges sends, in the order that `pick` chooses, until `work` is done. */
  async flow(work: Promise<unknown>, pick: () => number = () => 0): Promise<void> {
    let done = false
    const finished = work.finally(() => {
      done = true
    })
    while (!done) {
      this.underWay[pick() % Math.max(1, this.underWay.length)]?.resolve()
      await new Promise((resolve) => setImmediate(resolve))
    }
    await finished
  }
}

const collections = [entry('one'), entry('two')]

const put = fc.record({
  id: fc.nat({ max: 5 }),
  collection: fc.constantFrom(0, 1),
  kind: fc.constantFrom<ChangeEvent['kind']>('insert', 'replace', 'update', 'delete'),
})

describe('lanes', () => {
  it('send every change once, send the changes of each document in order, and report only acknowledged changes as safe', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    onTestFinished(() => {
      vi.useRealTimers()
    })
    const step = fc.oneof(
      { weight: 6, arbitrary: put.map((put) => ({ do: 'put' as const, put })) },
      { weight: 3, arbitrary: fc.constant({ do: 'routed' as const }) },
      { weight: 3, arbitrary: fc.nat({ max: 3 }).map((which) => ({ do: 'acknowledge' as const, which })) },
      { weight: 1, arbitrary: fc.constant({ do: 'wait for capacity' as const }) },
      { weight: 2, arbitrary: fc.constant({ do: 'time passes' as const }) },
    )
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.infiniteStream(fc.nat()), async (steps, picks) => {
        const bench = new Bench(3)
        /** The times of each document's newest event and newest send. */
        const newest = new Map<string, number>()
        const sentUpTo = new Map<string, number>()
        let routed = 0
        let time = 0
        let events = 0
        const acknowledgedAt: number[] = []
        /** Every event, with its batch and the send that carried it. */
        const puts: { key: string; batch: number; carriedBy: Sent | null }[] = []
        let known = 0
        const check = (): void => {
          for (; known < bench.sent.length; known++) {
            const carrier = bench.sent[known] as Sent
            const keys = new Set([...carrier.identities.values()].map((one) => `${carrier.entry.name} ${idIn(one)}`))
            for (const put of puts) if (!put.carriedBy && keys.has(put.key)) put.carriedBy = carrier
          }
          for (const put of puts) {
            if (!put.carriedBy?.acknowledged) expect(bench.watermark.safe ?? 0).toBeLessThan(put.batch)
          }
          expect(bench.watermark.safe ?? 0).toBeLessThanOrEqual(routed)
          for (const { entry, identities, notBefore } of bench.underWay) {
            for (const identity of identities.values()) {
              const key = `${entry.name} ${idIn(identity)}`
              const at = identity.document ? identity.document.readUInt16LE() : Number(notBefore)
              expect(at).toBeGreaterThanOrEqual(sentUpTo.get(key) ?? 0)
              sentUpTo.set(key, at)
            }
          }
          const keys = bench.underWay.flatMap(({ entry, identities }) =>
            [...identities.values()].map((identity) => `${entry.name} ${idIn(identity)}`),
          )
          expect(new Set(keys).size, 'a document is in flight twice').toBe(keys.length)
          // Each lane has one batch in flight, with one send per collection.
          expect(bench.underWay.length).toBeLessThanOrEqual(3 * collections.length)
        }
        for (const step of steps) {
          if (step.do === 'put') {
            time += 1
            events += 1
            const { id, collection, kind } = step.put
            const of = collections[collection] as CatalogEntry
            bench.lanes.put(id % 3, of, event(kind, time), idElement(id), false)
            newest.set(`${of.name} ${id}`, time)
            puts.push({ key: `${of.name} ${id}`, batch: routed + 1, carriedBy: null })
          } else if (step.do === 'routed') {
            routed += 1
            bench.watermark.routed(routed)
            bench.lanes.sendDue()
          } else if (step.do === 'time passes') vi.advanceTimersByTime(15)
          else if (step.do === 'wait for capacity') await bench.lanes.waitForCapacity()
          else bench.underWay[step.which % Math.max(1, bench.underWay.length)]?.resolve()
          await new Promise((resolve) => setImmediate(resolve))
          check()
          acknowledgedAt.push(bench.watermark.safe ?? 0)
        }
        bench.watermark.routed(++routed)
        await bench.flow(bench.lanes.drain(), () => picks.next().value)
        expect(bench.watermark.safe).toBe(routed)
        expect(bench.applied).toBe(events)
        expect(acknowledgedAt).toEqual([...acknowledgedAt].sort((one, other) => one - other))
        const last = new Map<string, Identity>()
        for (const { entry, identities } of bench.sent) {
          for (const identity of identities.values()) last.set(`${entry.name} ${idIn(identity)}`, identity)
        }
        expect(new Set(last.keys())).toEqual(new Set(newest.keys()))
        for (const [key, identity] of last) {
          if (identity.document) expect(identity.document.readUInt16LE()).toBe(newest.get(key))
        }
      }),
      { numRuns: 150 },
    )
  })

  it('hold events that arrive slowly for a moment, and then send them without another call of sendDue', async () => {
    const bench = new Bench(1)
    for (let id = 0; id < 5; id++) {
      bench.lanes.put(0, entry('c'), event('insert', id + 1), idElement(id), false)
      bench.lanes.sendDue()
    }
    expect(bench.sent).toEqual([])
    await delay(60)
    expect(bench.sent.length).toBeGreaterThan(0)
    bench.watermark.routed(1)
    for (const one of [...bench.underWay]) one.resolve()
    await delay(0)
    expect(bench.watermark.safe).toBe(1)
  })

  it('require a source read that includes the newest event of the batch', async () => {
    const bench = new Bench(1)
    for (const time of [7, 9, 8])
      bench.lanes.put(0, collections[0] as CatalogEntry, event('update', time), idElement(time), false)
    await bench.flow(bench.lanes.drain())
    expect(bench.sent.map(({ notBefore }) => notBefore)).toEqual([9n])
  })

  it('make the reader wait while they are full, and let it continue when there is capacity again', async () => {
    const bench = new Bench(2)
    const large = { ...event('insert', 1), document: Buffer.alloc(10 * 1024 * 1024) }
    for (let id = 0; id < 4; id++) bench.lanes.put(id % 2, collections[0] as CatalogEntry, large, idElement(id), false)
    expect(bench.lanes.full).toBe(false)
    bench.lanes.put(0, collections[0] as CatalogEntry, large, idElement(5), false)
    expect(bench.lanes.full).toBe(true)
    let hasCapacity = false
    const waiting = bench.lanes.waitForCapacity().then(() => {
      hasCapacity = true
    })
    await delay(1)
    expect(hasCapacity).toBe(false)
    bench.underWay[0]?.resolve()
    await waiting
    expect(bench.lanes.full).toBe(false)
    await bench.flow(bench.lanes.drain())
  })

  it('send nothing after a failure, and are drained when no send is in flight', async () => {
    const bench = new Bench(2)
    const of = collections[0] as CatalogEntry
    for (const id of [0, 1]) bench.lanes.put(id, of, event('insert', 1), idElement(id), false)
    bench.lanes.sendDue()
    await delay(30)
    expect(bench.underWay).toHaveLength(2)
    const failure = new Error('refused')
    bench.underWay[0]?.reject(failure)
    await delay(1)
    expect(bench.failures).toEqual([failure])
    let drained = false
    const draining = bench.lanes.drain().then(() => {
      drained = true
    })
    await delay(20)
    expect(drained, 'a write is still in flight').toBe(false)
    bench.underWay[0]?.resolve()
    await draining
    bench.watermark.routed(1)
    expect(bench.watermark.safe, 'a failed batch is not safe').toBeNull()

    bench.lanes.put(1, of, event('insert', 2), idElement(3), false)
    bench.lanes.sendDue()
    await delay(30)
    await bench.lanes.drain()
    await bench.lanes.waitForCapacity()
    expect(bench.sent).toHaveLength(2)
  })
})

describe('folding events of one document', () => {
  const folded = (...kinds: ChangeEvent['kind'][]) =>
    kinds.reduce<Identity | undefined>((known, kind, at) => fold(known, event(kind, at + 1), idElement(1)), undefined)

  it.each<[ChangeEvent['kind'][], Partial<Identity>]>([
    [['insert'], { fresh: true, inserted: true, deleted: false, document: Buffer.from([1, 0]) }],
    [['insert', 'update'], { fresh: true, deleted: false, document: null }],
    [['insert', 'delete'], { deleted: true, document: null }],
    [['delete', 'insert'], { fresh: false, inserted: true, deleted: false, document: Buffer.from([2, 0]) }],
    [['update', 'replace'], { fresh: false, inserted: false, deleted: false, document: Buffer.from([2, 0]) }],
    [['replace', 'update'], { deleted: false, document: null }],
    [['update', 'delete'], { deleted: true, document: null }],
    [['delete', 'insert', 'delete'], { deleted: true, document: null }],
  ])('%j yields the state after the newest event', (kinds, expected) => {
    expect(folded(...kinds)).toMatchObject(expected)
  })

  it('moves a document that was inserted again to the end if the order of documents matters', async () => {
    const order = async (reorder: boolean) => {
      const bench = new Bench(1)
      for (const [id, kind] of [
        [1, 'insert'],
        [2, 'insert'],
        [1, 'update'],
        [1, 'delete'],
        [1, 'insert'],
      ] as const) {
        bench.lanes.put(0, collections[0] as CatalogEntry, event(kind, 1), idElement(id), reorder)
      }
      await bench.flow(bench.lanes.drain())
      return [...(bench.sent[0]?.identities.values() ?? [])].map(idIn)
    }
    expect(await order(true)).toEqual([2, 1])
    expect(await order(false)).toEqual([1, 2])
  })

  it('identifies a document by the value of its _id, in any numeric type', () => {
    const double = Buffer.from([0x01, 0x5f, 0x69, 0x64, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f])
    expect(identityKey(double)).toBe(identityKey(idElement(1)))
    expect(identityKey(double)).not.toBe(identityKey(idElement(2)))
    const objectId = (last: number) => Buffer.from([0x07, 0x5f, 0x69, 0x64, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, last])
    expect(identityKey(objectId(0x80))).not.toBe(identityKey(objectId(0x81)))
  })
})
