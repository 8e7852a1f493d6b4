import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { clusterTime, ordinalOf, secondsOf } from '../../src/domain/cluster-time.ts'
import { isNotAfter, type StreamBatch, type StreamPosition } from '../../src/mongo/change-stream.ts'
import { type Publication, type Share, SharedStream } from '../../src/mongo/shared-stream.ts'

const hex = (value: number, digits = 8): string => value.toString(16).padStart(digits, '0').toUpperCase()
const at = (second: number) => clusterTime(second, 1)
type Token = StreamPosition & { kind: 'token' }

/** Returns a token without an event. Like such a token of the server, it sorts before every event of its time. */
function markAt(second: number): Token {
  const time = at(second)
  return { kind: 'token', time, token: { _data: `82${hex(secondsOf(time))}${hex(ordinalOf(time))}00` } }
}

/** The events of a cluster. Each has a time in seconds, which several events may share. */
class Log {
  readonly times: number[] = [1]
  /** Every later event has at least this time. */
  frontier = 1

  positionOf(event: number): Token {
    const time = at(this.times[event] as number)
    return { kind: 'token', time, token: { _data: `82${hex(secondsOf(time))}${hex(ordinalOf(time))}80${hex(event)}` } }
  }

  /** Returns the index of the first event that a stream from this position delivers. */
  from(position: StreamPosition): number {
    const data = position.kind === 'token' ? position.token._data : ''
    if (data.slice(18, 20) === '80') return Number.parseInt(data.slice(20), 16) + 1
    const first = this.times.findIndex((time) => at(time) >= position.time)
    return first < 0 ? this.times.length : first
  }

  /**
   * Returns the reply to a stream that resumes at `from`: up to `count` events, and a position, which is that of an event or a
   * token without an event.
   */
  read(from: StreamPosition, count: number, marks: boolean): { events: number[]; position: Token } | null {
    const place = this.from(from)
    const events = this.times.slice(place, place + count).map((_, offset) => place + offset)
    const next = place + events.length
    const last = this.times[next - 1] ?? 0
    const following = this.times[next] ?? last + 1
    if (marks && following > last && at(following) >= from.time) {
      this.frontier = Math.max(this.frontier, following)
      return { events, position: markAt(following) }
    }
    return events.length === 0 ? null : { events, position: this.positionOf(next - 1) }
  }
}

type Plain = 'end' | 'join' | 'leave' | 'full' | 'has room' | 'checkpoint' | 'restart'
type Step =
  | { do: 'write'; count: number; laterBy: number }
  | { do: 'publish'; from: number; byTime: boolean; matching: boolean }
  | { do: 'pass' | 'read'; count: number; marks: boolean }
  | { do: Plain }

const batch = (what: 'pass' | 'read') =>
  fc.record({ do: fc.constant(what), count: fc.nat({ max: 8 }), marks: fc.boolean() })
const plain = (...what: Plain[]) => fc.record({ do: fc.constantFrom(...what) })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('write' as const),
      count: fc.integer({ min: 1, max: 4 }),
      laterBy: fc.nat({ max: 2 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('publish' as const),
      from: fc.nat({ max: 30 }),
      byTime: fc.boolean(),
      matching: fc.integer({ min: 0, max: 9 }).map((one) => one > 0),
    }),
  },
  { weight: 6, arbitrary: batch('pass') },
  { weight: 4, arbitrary: batch('read') },
  { weight: 8, arbitrary: plain('join') },
  { weight: 1, arbitrary: plain('end', 'leave', 'full') },
  { weight: 2, arbitrary: plain('checkpoint', 'restart', 'has room') },
)

const selected = { 'ns.db': 'app' }

/**
 * Simulates the owner of a published stream and a second reader. Like the verifier, that reader reads a stream of its own or
 * takes the published batches.
 */
class World {
  readonly log = new Log()
  readonly shared = new SharedStream()
  /** The position at which the reader began. `got` contains the events that the reader has received since then. */
  begun: StreamPosition = { kind: 'time', time: at(1) }
  got = new Set<number>()
  position: StreamPosition = this.begun
  stored: StreamPosition = this.begun
  share: Share | null = null
  isFull = false
  taken = 0
  publication: { owner: Publication; position: StreamPosition; matching: boolean } | null = null

  do(step: Step): void {
    switch (step.do) {
      case 'write': {
        const time = Math.max(this.log.frontier, this.log.times.at(-1) as number) + step.laterBy
        for (let count = 0; count < step.count; count++) this.log.times.push(time)
        return
      }
      case 'publish': {
        const event = step.from % this.log.times.length
        const start: StreamPosition = step.byTime
          ? { kind: 'time', time: at(this.log.times[event] as number) }
          : this.log.positionOf(event)
        const owner = this.shared.publish(start, step.matching ? selected : { ...selected })
        this.publication = { owner, position: start, matching: step.matching }
        return
      }
      case 'pass': {
        const read = this.publication && this.log.read(this.publication.position, step.count, step.marks)
        if (!read || !this.publication) return
        this.publication.position = read.position
        const events = this.publication.matching ? read.events : []
        this.publication.owner.publish(batchOf({ ...read, events }))
        return
      }
      case 'read': {
        if (this.share) return
        const read = this.log.read(this.position, step.count, step.marks)
        if (read) this.take(batchOf(read))
        return
      }
      case 'join': {
        if (this.share || this.isFull) return
        const share = this.shared.join(this.position, selected, (batch) => {
          if (this.isFull) return false
          this.taken += 1
          this.take(batch)
          return true
        })
        this.share = share
        void share?.ended.then(() => {
          if (this.share === share) this.share = null
        })
        return
      }
      case 'end':
        this.publication?.owner.end()
        return
      case 'leave':
        this.share?.leave()
        return
      case 'full':
      case 'has room':
        this.isFull = step.do === 'full'
        return
      case 'checkpoint':
        this.stored = this.position
        return
      case 'restart':
        this.share?.leave()
        this.got = new Set()
        this.begun = this.stored
        this.position = this.stored
    }
  }

  take({ events, position }: StreamBatch): void {
    for (const bytes of events) this.got.add(bytes.readInt32LE())
    this.position = position
  }

  /** The events before the reader's position that the reader has not received. */
  get missed(): number[] {
    const passed = this.log.from(this.position)
    const missed: number[] = []
    for (let event = this.log.from(this.begun); event < passed; event++) if (!this.got.has(event)) missed.push(event)
    return missed
  }
}

function batchOf({ events, position }: { events: number[]; position: Token }): StreamBatch {
  return { events: events.map((event) => Buffer.from([event, event >> 8, 0, 0])), position }
}

describe('a stream with a second reader', () => {
  it('leaves no gap before the position of that reader for any order of publishing, joining, leaving and restarting', async () => {
    let taken = 0
    const property = fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 80, size: 'max' }), async (steps) => {
      const world = new World()
      for (const one of steps) {
        const before = world.position.time
        world.do(one)
        await Promise.resolve()
        expect(world.missed).toEqual([])
        if (one.do !== 'restart') expect(world.position.time >= before).toBe(true)
      }
      taken += world.taken
    })
    await fc.assert(property, { numRuns: 1_000 })
    // The reader must have taken published batches, because the property would also hold if it never joined.
    expect(taken).toBeGreaterThan(300)
  })

  it('cannot order two different tokens of one time', () => {
    const [mark, event] = [markAt(5), new Log().positionOf(0)]
    const sameTime: Token = { ...event, time: mark.time }
    expect([isNotAfter(mark, sameTime), isNotAfter(sameTime, mark), isNotAfter(mark, mark)]).toEqual([
      false,
      false,
      true,
    ])
    const byTime: StreamPosition = { kind: 'time', time: mark.time }
    expect([isNotAfter(byTime, mark), isNotAfter(mark, byTime), isNotAfter(byTime, byTime)]).toEqual([
      true,
      false,
      true,
    ])
    expect([isNotAfter(markAt(4), byTime), isNotAfter(markAt(6), byTime)]).toEqual([true, false])
  })

  it('continues when the reader throws, and only the reader gets that error', async () => {
    const shared = new SharedStream()
    const owner = shared.publish(markAt(1), null)
    const share = shared.join(markAt(1), null, () => {
      throw new Error('not a change event')
    })
    owner.publish({ events: [], position: markAt(2) })
    expect(await share?.ended).toEqual(new Error('not a change event'))
    const taken: bigint[] = []
    shared.join(markAt(2), null, ({ position }) => taken.push(position.time) > 0)
    owner.publish({ events: [], position: markAt(3) })
    expect(taken).toEqual([at(3)])
  })

  it('passes on no batch after its end, and no batch of an earlier publication', async () => {
    const shared = new SharedStream()
    const former = shared.publish(markAt(1), null)
    const share = shared.join(markAt(1), null, () => true)
    const owner = shared.publish(markAt(1), null)
    expect(await share?.ended).toBeNull()
    const taken: bigint[] = []
    const again = shared.join(markAt(1), null, ({ position }) => taken.push(position.time) > 0)
    former.publish({ events: [], position: markAt(9) })
    former.end()
    owner.publish({ events: [], position: markAt(2) })
    owner.end()
    owner.publish({ events: [], position: markAt(3) })
    expect(await again?.ended).toBeNull()
    expect(taken).toEqual([at(2)])
    expect(shared.join(markAt(9), null, () => true)).toBeNull()
  })
})
