import { inspect } from 'node:util'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Liveness } from '../../src/coordination/liveness.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { RedisLiveness } from '../../src/redis/redis-liveness.ts'
import { startRedis, type TestRedis } from '../support/redis-server.ts'
import { slowness } from '../support/slowness.ts'
import { startProxy } from '../support/tcp-proxy.ts'
import { beatOf } from './liveness-stores.ts'

/** What a Redis has beyond the contract of all stores (liveness.mongo.test.ts): it forgets, tells, and asks for passwords. */

const password = 'hunter2 @/:%?#é'
let redis: TestRedis
const opened: Liveness[] = []
const printed = [vi.spyOn(console, 'error'), vi.spyOn(console, 'warn'), vi.spyOn(console, 'log')]

function open(url = redis.url, scope = 'sync'): RedisLiveness {
  const liveness = new RedisLiveness(url, scope)
  opened.push(liveness)
  return liveness
}

beforeEach(() => {
  for (const spy of printed) spy.mockClear()
})
afterEach(async () => {
  await Promise.all(opened.splice(0).map((liveness) => liveness.close()))
  await redis?.stop()
  // The client prints errors that nobody listens to.
  for (const spy of printed) expect(spy).not.toHaveBeenCalled()
})

const failure = async (call: Promise<unknown>): Promise<Error> => {
  const error = await call.then(
    () => null,
    (reason) => reason,
  )
  expect(error).toBeInstanceOf(Error)
  return error
}

describe('a Redis that is lost', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('by a flush has the row again after the next heartbeat', async () => {
    const liveness = open()
    await liveness.publish(beatOf('a'))
    await redis.flush()
    expect(await liveness.instances()).toEqual([])
    await liveness.publish(beatOf('a'))
    expect(await liveness.instances()).toMatchObject([{ id: 'a', alive: true }])
  })

  it('by kill -9 makes calls reject soon, and after a restart all is as before, notifications too', async () => {
    const [liveness, other] = [open(), open()]
    const heard = vi.fn()
    other.onNotified = heard
    await liveness.publish(beatOf('a'))
    await redis.kill()
    for (let round = 0; round < 5; round++) {
      const since = performance.now()
      const error = await failure(liveness.publish(beatOf('a', { incarnation: 'never stored' })))
      expect(error.message).toMatch(/^--redis: (the connection to Redis was lost|.*ECONN)/)
      expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
      other.notify()
    }
    await vi.waitFor(async () => expect((await failure(liveness.instances())).message).toMatch(/ECONNREFUSED/))
    await redis.restart()
    await vi.waitFor(async () => expect(await liveness.instances()).toEqual([]), 10_000)
    // Nothing that was rejected is done later.
    await liveness.publish(beatOf('b'))
    expect(await liveness.instances()).toMatchObject([{ id: 'b', alive: true }])
    await vi.waitFor(() => {
      liveness.notify()
      expect(heard).toHaveBeenCalled()
    }, 10_000)
  })

  it('on the way, silently, is found again by both connections', async () => {
    const proxy = await startProxy('127.0.0.1', redis.port)
    const [liveness, other] = [open(`redis://127.0.0.1:${proxy.port}`), open()]
    const heard = vi.fn()
    liveness.onNotified = heard
    await liveness.publish(beatOf('a'))
    await vi.waitFor(() => {
      other.notify()
      expect(heard).toHaveBeenCalled()
    })
    proxy.blackhole()
    expect((await failure(liveness.instances())).message).toMatch(/^--redis: /)
    await proxy.heal()
    await vi.waitFor(() => liveness.instances(), 10_000)
    heard.mockClear()
    await vi.waitFor(() => {
      other.notify()
      expect(heard).toHaveBeenCalled()
    }, 10_000)
    await proxy.close()
  })
})

describe('a notification', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('reaches the others of the same sync, not its sender', async () => {
    const [sender, receiver, foreign] = [open(), open(), open(redis.url, 'another sync')]
    const [own, heard, elsewhere] = [vi.fn(), vi.fn(), vi.fn()]
    sender.onNotified = own
    receiver.onNotified = heard
    foreign.onNotified = elsewhere
    await Promise.all([sender, receiver, foreign].map((liveness) => liveness.instances()))
    const channelOf = (scope: string) => `tandem:{${scope}}:notify`
    await vi.waitFor(async () => expect(await redis.listeners(channelOf('sync'))).toBe(2))
    await vi.waitFor(async () => expect(await redis.listeners(channelOf('another sync'))).toBe(1))
    sender.notify()
    await vi.waitFor(() => expect(heard).toHaveBeenCalledTimes(1))
    // Messages come in their order: had the sender heard its own, it would have by the time it hears this one.
    receiver.notify()
    await vi.waitFor(() => expect(own).toHaveBeenCalled())
    expect(own).toHaveBeenCalledTimes(1)
    expect(heard).toHaveBeenCalledTimes(1)
    expect(elsewhere).not.toHaveBeenCalled()
  })
})

describe('a Redis with a password', () => {
  beforeEach(async () => {
    redis = await startRedis({ password })
  })

  it('is used with it, whatever characters it has, and with a number of a database', async () => {
    const [one, two] = [open(), open(`${redis.url}/7`)]
    await one.publish(beatOf('a'))
    expect(await one.instances()).toHaveLength(1)
    expect(await two.instances()).toHaveLength(0)
  })

  it.each([
    ['wrong', (port: number) => `redis://:hunter3@127.0.0.1:${port}`],
    ['missing', (port: number) => `redis://127.0.0.1:${port}`],
    ['for an unknown user', (port: number) => `redis://robert:hunter3@127.0.0.1:${port}`],
  ])('says clearly that it is %s, and never what it is', async (_, url) => {
    const liveness = open(url(redis.port))
    for (let round = 0; round < 3; round++) {
      const since = performance.now()
      const error = await failure(liveness.publish(beatOf('a')))
      expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
      expect(error.message).toMatch(
        /^--redis: Redis refused the user name or password of the URL \((WRONGPASS|NOAUTH)\)$/,
      )
      expect(inspect(error, { depth: 10, showHidden: true })).not.toMatch(/hunter|robert/)
    }
    expect(inspect(liveness, { depth: 10, showHidden: true })).not.toMatch(/hunter|robert/)
  })
})

describe('what is not for us', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('a URL that may not be used is refused at once', () => {
    expect(() => new RedisLiveness('http://u:hunter2@a', 'sync')).toThrow(/^--redis: not the address of a Redis/)
  })

  it('a database that Redis does not have is not exchanged for another', async () => {
    const liveness = open(`${redis.url}/99`)
    for (let round = 0; round < 2; round++) {
      expect((await failure(liveness.publish(beatOf('a')))).message).toMatch(/^--redis: .*DB index is out of range/)
    }
    expect(await open().instances()).toEqual([])
  })

  it('a server without TLS is not talked to without it', async () => {
    const since = performance.now()
    const error = await failure(open(redis.url.replace('redis:', 'rediss:')).publish(beatOf('a')))
    expect(error.message).toMatch(/^--redis: /)
    expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
  })

  it('a row of another version is refused by name', async () => {
    const liveness = open()
    await liveness.publish(beatOf('a'))
    const foreign = open(redis.url, 'sync')
    // As a later version may write it.
    const later = { ...beatOf('b'), partitions: 'all' as unknown as number[] }
    await foreign.publish(later)
    const error = await failure(liveness.instances())
    expect(error).toBeInstanceOf(FatalError)
    expect(error).toMatchObject({ failure: 'MetadataVersion' })
    await liveness.forget('b')
    expect(await liveness.instances()).toHaveLength(1)
  })
})
