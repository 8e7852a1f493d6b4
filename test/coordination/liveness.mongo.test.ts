import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Liveness } from '../../src/coordination/liveness.ts'
import { inParallel } from '../../src/domain/in-parallel.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { heartbeatOf, idleProgress, type LivenessStore, mongoStore, redisStore } from './liveness-stores.ts'

/** The contract of every store. `patienceMS`: maximum duration of a call that is not answered, ms. */
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
    for (const { id } of await liveness.instances()) await liveness.remove(id)
  })

  const ids = async (from = liveness) => (await from.instances()).map(({ id }) => id)

  it('shows no instance before the first heartbeat', async () => {
    expect(liveness.ttlMS).toBe(defaultTtlMS)
    expect(await liveness.instances()).toEqual([])
  })

  it('shows the last heartbeat of every instance, in the order of their ids, to all instances', async () => {
    await liveness.publish(heartbeatOf('b', { coordinator: true, partitions: [2, 0, 5] }))
    await other.publish(heartbeatOf('a'))
    await other.publish(heartbeatOf('B', { partitions: [1] }))
    await liveness.publish(heartbeatOf('b', { partitions: [2] }))
    const observed = { alive: true, lastSeenSeconds: expect.any(Number), heartbeatTime: expect.any(String) }
    const expected = [
      { ...heartbeatOf('B', { partitions: [1] }), ...observed },
      { ...heartbeatOf('a'), ...observed },
      { ...heartbeatOf('b', { partitions: [2] }), ...observed },
    ]
    expect(await liveness.instances()).toEqual(expected)
    expect(await other.instances()).toEqual(expected)
  })

  it('has one row for each id, so a restarted process replaces its predecessor', async () => {
    await liveness.publish(heartbeatOf('a', { incarnation: 'first', coordinator: true, partitions: [1] }))
    await other.publish(heartbeatOf('a', { incarnation: 'second' }))
    expect(await liveness.instances()).toMatchObject([
      { id: 'a', incarnation: 'second', coordinator: false, partitions: [] },
    ])
  })

  it('accepts the first heartbeats of many instances at the same time, also of the same id', async () => {
    const heartbeats = Array.from({ length: 20 }, (_, index) => heartbeatOf(`i${index % 10}`))
    await Promise.all(heartbeats.map((heartbeat, index) => (index % 2 ? liveness : other).publish(heartbeat)))
    expect(await ids()).toEqual(Array.from({ length: 10 }, (_, index) => `i${index}`))
  })

  it('shows the newest heartbeats if a sync has had more than a thousand instances', async () => {
    const former = Array.from({ length: 1_050 }, (_, index) => heartbeatOf(`former${index}`))
    await inParallel(50, former, (heartbeat) => liveness.publish(heartbeat))
    await liveness.publish(heartbeatOf('present'))
    expect(await ids(other)).toContain('present')
    for (let left = await ids(); left.length > 0; left = await ids()) {
      await inParallel(50, left, (id) => liveness.remove(id))
    }
  })

  it('preserves all characters and values of an id, an incarnation and progress', async () => {
    const odd = JSON.parse(
      '{"$set":{"a.b":[{"":null}]},"__proto__":{"x":1},"_id":"$$NOW","n":1e300,"t":"\\u0000ü\\ud83d\\ude00"}',
    )
    const progress = { ...idleProgress, ...odd } as Progress
    await liveness.publish(heartbeatOf('$a.b {}', { incarnation: '$$ROOT', progress }))
    const [row] = await other.instances()
    expect(row).toMatchObject({ id: '$a.b {}', incarnation: '$$ROOT' })
    expect(JSON.stringify(row?.progress)).toBe(JSON.stringify(progress))
  })

  it('counts an instance as lost when it sends no heartbeat for ttlMS, until its next heartbeat', async () => {
    const impatient = store.open({ ttlMS: 1_500 })
    await impatient.instances() // connected
    await impatient.publish(heartbeatOf('a'))
    const [fresh] = await impatient.instances()
    expect(fresh?.alive).toBe(true)
    expect(fresh?.lastSeenSeconds).toBeLessThan(1.5)
    const lost = await vi.waitFor(async () => {
      // The cluster time, by which MongoDB measures the age, advances with writes.
      await other.publish(heartbeatOf('b'))
      const [row] = await impatient.instances()
      expect(row?.alive).toBe(false)
      return row
    }, 5_000)
    expect(lost?.lastSeenSeconds).toBeGreaterThanOrEqual(1.5)
    expect(lost?.lastSeenSeconds).toBeLessThan(5)
    // A client with a longer ttlMS still counts the instance as alive.
    expect(await liveness.instances()).toMatchObject([{ id: 'a', alive: true }, { id: 'b' }])
    await impatient.publish(heartbeatOf('a'))
    expect(await impatient.instances()).toMatchObject([{ id: 'a', alive: true }, { id: 'b' }])
  })

  it("uses the store's clock, not the host's", async () => {
    const now = Date.now()
    const clock = vi.spyOn(Date, 'now').mockReturnValue(now - 3_600_000)
    await liveness.publish(heartbeatOf('a'))
    clock.mockReturnValue(now + 3_600_000)
    const [row] = await other.instances()
    clock.mockRestore()
    expect(row).toMatchObject({ alive: true })
    expect(row?.lastSeenSeconds).toBeLessThan(3)
  })

  it('removes the row of an instance that has left, and no other row', async () => {
    await liveness.publish(heartbeatOf('a'))
    await liveness.publish(heartbeatOf('b'))
    await other.remove('a')
    await other.remove('never seen')
    expect(await ids()).toEqual(['b'])
    await liveness.publish(heartbeatOf('a'))
    expect(await ids()).toEqual(['a', 'b'])
  })

  it('keeps two syncs apart', async () => {
    const elsewhere = store.open({ scope: 'two' })
    await liveness.publish(heartbeatOf('a'))
    await elsewhere.publish(heartbeatOf('b'))
    expect(await ids()).toEqual(['a'])
    expect(await ids(elsewhere)).toEqual(['b'])
    await elsewhere.remove('a')
    expect(await ids()).toEqual(['a'])
  })

  it.each([
    ['refuses connections', () => store.proxy.cut()],
    ['swallows every byte', async () => store.proxy.blackhole()],
  ])('rejects in time while the store %s, and works again once the store answers', async (_, disconnect) => {
    await liveness.publish(heartbeatOf('a'))
    await disconnect()
    for (let round = 0; round < 2; round++) {
      const since = performance.now()
      const calls = [liveness.publish(heartbeatOf('a')), liveness.instances(), liveness.remove('b')]
      const results = await Promise.allSettled(calls)
      expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
      for (const result of results) expect((result as PromiseRejectedResult).reason).toBeInstanceOf(Error)
      expect(performance.now() - since).toBeLessThan(patienceMS)
      liveness.notify()
    }
    await store.proxy.heal()
    await vi.waitFor(() => liveness.publish(heartbeatOf('a', { incarnation: 'back' })), 30_000)
    await vi.waitFor(
      async () => expect(await other.instances()).toMatchObject([{ incarnation: 'back', alive: true }]),
      30_000,
    )
  })

  it('does nothing after it is closed, and does not affect other clients', async () => {
    const leaving = store.open()
    await leaving.publish(heartbeatOf('a'))
    await leaving.close()
    leaving.notify()
    await liveness.publish(heartbeatOf('b'))
    expect(await ids()).toEqual(['a', 'b'])
  })
})
