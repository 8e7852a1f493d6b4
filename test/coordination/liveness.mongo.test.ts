import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Liveness } from '../../src/coordination/liveness.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { beatOf, idleProgress, type LivenessStore, mongoStore, redisStore } from './liveness-stores.ts'

/** What every store promises. `patienceMS`: of a call that is not answered. */
describe.each([
  { name: 'MongoLiveness', start: mongoStore, patienceMS: 7_000, defaultTtlMS: 10_000 },
  { name: 'RedisLiveness', start: redisStore, patienceMS: 3_000, defaultTtlMS: 3_000 },
])('$name', ({ start, patienceMS, defaultTtlMS }) => {
  let store: LivenessStore
  let liveness: Liveness
  let other: Liveness

  beforeAll(async () => {
    store = await start()
    liveness = store.open()
    other = store.open()
  })
  afterAll(() => store?.stop())
  beforeEach(async () => {
    for (const { id } of await liveness.instances()) await liveness.forget(id)
  })

  const ids = async (from = liveness) => (await from.instances()).map(({ id }) => id)

  it('shows nobody before the first beat', async () => {
    expect(liveness.ttlMS).toBe(defaultTtlMS)
    expect(await liveness.instances()).toEqual([])
  })

  it('shows every instance as it described itself last, in the order of their ids, to all', async () => {
    await liveness.publish(beatOf('b', { coordinator: true, partitions: [2, 0, 5] }))
    await other.publish(beatOf('a'))
    await other.publish(beatOf('B', { partitions: [1] }))
    await liveness.publish(beatOf('b', { partitions: [2] }))
    const seen = { alive: true, lastSeenSeconds: expect.any(Number) }
    const expected = [
      { ...beatOf('B', { partitions: [1] }), ...seen },
      { ...beatOf('a'), ...seen },
      { ...beatOf('b', { partitions: [2] }), ...seen },
    ]
    expect(await liveness.instances()).toEqual(expected)
    expect(await other.instances()).toEqual(expected)
  })

  it('has one row for an id: a restarted process replaces its predecessor', async () => {
    await liveness.publish(beatOf('a', { incarnation: 'first', coordinator: true, partitions: [1] }))
    await other.publish(beatOf('a', { incarnation: 'second' }))
    expect(await liveness.instances()).toMatchObject([
      { id: 'a', incarnation: 'second', coordinator: false, partitions: [] },
    ])
  })

  it('takes the first beats of many at once, also of the same id', async () => {
    const beats = Array.from({ length: 20 }, (_, index) => beatOf(`i${index % 10}`))
    await Promise.all(beats.map((beat, index) => (index % 2 ? liveness : other).publish(beat)))
    expect(await ids()).toEqual(Array.from({ length: 10 }, (_, index) => `i${index}`))
  })

  it('keeps whatever an id, an incarnation and progress are made of', async () => {
    const odd = JSON.parse(
      '{"$set":{"a.b":[{"":null}]},"__proto__":{"x":1},"_id":"$$NOW","n":1e300,"t":"\\u0000ü\\ud83d\\ude00"}',
    )
    const progress = { ...idleProgress, ...odd } as Progress
    await liveness.publish(beatOf('$a.b {}', { incarnation: '$$ROOT', progress }))
    const [seen] = await other.instances()
    expect(seen).toMatchObject({ id: '$a.b {}', incarnation: '$$ROOT' })
    expect(JSON.stringify(seen?.progress)).toBe(JSON.stringify(progress))
  })

  it('counts an instance as lost when it is not heard of for ttlMS, until its next beat', async () => {
    const impatient = store.open({ ttlMS: 700 })
    await impatient.instances() // connected
    await impatient.publish(beatOf('a'))
    const [fresh] = await impatient.instances()
    expect(fresh?.alive).toBe(true)
    expect(fresh?.lastSeenSeconds).toBeLessThan(0.7)
    const lost = await vi.waitFor(async () => {
      const [seen] = await impatient.instances()
      expect(seen?.alive).toBe(false)
      return seen
    }, 5_000)
    expect(lost?.lastSeenSeconds).toBeGreaterThanOrEqual(0.7)
    expect(lost?.lastSeenSeconds).toBeLessThan(5)
    // Who asks with more patience sees it alive still.
    expect(await liveness.instances()).toMatchObject([{ id: 'a', alive: true }])
    await impatient.publish(beatOf('a'))
    expect(await impatient.instances()).toMatchObject([{ id: 'a', alive: true }])
  })

  it("goes by the store's clock, not by the host's", async () => {
    const now = Date.now()
    const clock = vi.spyOn(Date, 'now').mockReturnValue(now - 3_600_000)
    await liveness.publish(beatOf('a'))
    clock.mockReturnValue(now + 3_600_000)
    const [seen] = await other.instances()
    clock.mockRestore()
    expect(seen).toMatchObject({ alive: true })
    expect(seen?.lastSeenSeconds).toBeLessThan(3)
  })

  it('forgets who has left, and nobody else', async () => {
    await liveness.publish(beatOf('a'))
    await liveness.publish(beatOf('b'))
    await other.forget('a')
    await other.forget('never seen')
    expect(await ids()).toEqual(['b'])
    await liveness.publish(beatOf('a'))
    expect(await ids()).toEqual(['a', 'b'])
  })

  it('keeps two syncs apart', async () => {
    const elsewhere = store.open({ scope: 'two' })
    await liveness.publish(beatOf('a'))
    await elsewhere.publish(beatOf('b'))
    expect(await ids()).toEqual(['a'])
    expect(await ids(elsewhere)).toEqual(['b'])
    await elsewhere.forget('a')
    expect(await ids()).toEqual(['a'])
  })

  it.each([
    ['refuses connections', () => store.proxy.cut()],
    ['swallows every byte', async () => store.proxy.blackhole()],
  ])('rejects in time while the store %s, and goes on once it is back', async (_, away) => {
    await liveness.publish(beatOf('a'))
    await away()
    for (let round = 0; round < 2; round++) {
      const since = performance.now()
      const calls = [liveness.publish(beatOf('a')), liveness.instances(), liveness.forget('b')]
      const results = await Promise.allSettled(calls)
      expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
      for (const result of results) expect((result as PromiseRejectedResult).reason).toBeInstanceOf(Error)
      expect(performance.now() - since).toBeLessThan(patienceMS)
      liveness.notify()
    }
    await store.proxy.heal()
    await vi.waitFor(() => liveness.publish(beatOf('a', { incarnation: 'back' })), 30_000)
    await vi.waitFor(
      async () => expect(await other.instances()).toMatchObject([{ incarnation: 'back', alive: true }]),
      30_000,
    )
  })

  it('after its end rejects or does nothing, and leaves the others alone', async () => {
    const leaving = store.open()
    await leaving.publish(beatOf('a'))
    await leaving.close()
    leaving.notify()
    await liveness.publish(beatOf('b'))
    expect(await ids()).toEqual(['a', 'b'])
  })
})
