import { inspect } from 'node:util'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Liveness } from '../../src/coordination/liveness.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { RedisLiveness } from '../../src/redis/redis-liveness.ts'
import { startRedis, type TestRedis } from '../support/redis-server.ts'
import { slowness } from '../support/slowness.ts'
import { startProxy } from '../support/tcp-proxy.ts'
import { heartbeatOf } from './liveness-stores.ts'

/**
 * Tests of the Redis store beyond the contract of all stores (liveness.mongo.test.ts). A Redis may lose its data, sends
 * notifications, and may require a password.
 */

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
  // The client prints errors that have no listener.
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

describe('a Redis that loses its data or its connections', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('has the row of an instance again after the first heartbeat that follows a flush', async () => {
    const liveness = open()
    await liveness.publish(heartbeatOf('a'))
    await redis.flush()
    expect(await liveness.instances()).toEqual([])
    await liveness.publish(heartbeatOf('a'))
    expect(await liveness.instances()).toMatchObject([{ id: 'a', alive: true }])
  })

  it('makes calls reject soon after kill -9, and serves calls and notifications again after a restart', async () => {
    const [liveness, other] = [open(), open()]
    const notified = vi.fn()
    other.onNotified = notified
    await liveness.publish(heartbeatOf('a'))
    await redis.kill()
    for (let round = 0; round < 5; round++) {
      const since = performance.now()
      const error = await failure(liveness.publish(heartbeatOf('a', { incarnation: 'never stored' })))
      expect(error.message).toMatch(/^--redis: (the connection to Redis was lost|.*ECONN)/)
      expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
      other.notify()
    }
    await vi.waitFor(async () => expect((await failure(liveness.instances())).message).toMatch(/ECONNREFUSED/))
    await redis.restart()
    await vi.waitFor(async () => expect(await liveness.instances()).toEqual([]), 10_000)
    // A rejected call takes no effect later.
    await liveness.publish(heartbeatOf('b'))
    expect(await liveness.instances()).toMatchObject([{ id: 'b', alive: true }])
    await vi.waitFor(() => {
      liveness.notify()
      expect(notified).toHaveBeenCalled()
    }, 10_000)
  })

  it('is reached again by both connections after the network swallowed all packets', async () => {
    const proxy = await startProxy('127.0.0.1', redis.port)
    const [liveness, other] = [open(`redis://127.0.0.1:${proxy.port}`), open()]
    const notified = vi.fn()
    liveness.onNotified = notified
    await liveness.publish(heartbeatOf('a'))
    await vi.waitFor(() => {
      other.notify()
      expect(notified).toHaveBeenCalled()
    })
    proxy.blackhole()
    expect((await failure(liveness.instances())).message).toMatch(/^--redis: /)
    await proxy.heal()
    await vi.waitFor(() => liveness.instances(), 10_000)
    notified.mockClear()
    await vi.waitFor(() => {
      other.notify()
      expect(notified).toHaveBeenCalled()
    }, 10_000)
    await proxy.close()
  })
})

describe('a notification', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('reaches the other instances of the same sync, but not its sender', async () => {
    const [sender, receiver, foreign] = [open(), open(), open(redis.url, 'another sync')]
    const [own, received, elsewhere] = [vi.fn(), vi.fn(), vi.fn()]
    sender.onNotified = own
    receiver.onNotified = received
    foreign.onNotified = elsewhere
    await Promise.all([sender, receiver, foreign].map((liveness) => liveness.instances()))
    const channelOf = (scope: string) => `tandem:{${scope}}:notify`
    await vi.waitFor(async () => expect(await redis.listeners(channelOf('sync'))).toBe(2))
    await vi.waitFor(async () => expect(await redis.listeners(channelOf('another sync'))).toBe(1))
    sender.notify()
    await vi.waitFor(() => expect(received).toHaveBeenCalledTimes(1))
    // Messages arrive in order. If the sender received its own message, it would receive it before this one.
    receiver.notify()
    await vi.waitFor(() => expect(own).toHaveBeenCalled())
    expect(own).toHaveBeenCalledTimes(1)
    expect(received).toHaveBeenCalledTimes(1)
    expect(elsewhere).not.toHaveBeenCalled()
  })
})

describe('a Redis with a password', () => {
  beforeEach(async () => {
    redis = await startRedis({ password })
  })

  it('accepts a password with any characters, and selects the database by its number', async () => {
    const [one, two] = [open(), open(`${redis.url}/7`)]
    await one.publish(heartbeatOf('a'))
    expect(await one.instances()).toHaveLength(1)
    expect(await two.instances()).toHaveLength(0)
  })

  it.each([
    ['wrong', (port: number) => `redis://:hunter3@127.0.0.1:${port}`],
    ['missing', (port: number) => `redis://127.0.0.1:${port}`],
    ['for an unknown user', (port: number) => `redis://robert:hunter3@127.0.0.1:${port}`],
  ])('reports that the password is %s, and never prints it', async (_, url) => {
    const liveness = open(url(redis.port))
    for (let round = 0; round < 3; round++) {
      const since = performance.now()
      const error = await failure(liveness.publish(heartbeatOf('a')))
      expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
      expect(error.message).toMatch(
        /^--redis: Redis refused the user name or password of the URL \((WRONGPASS|NOAUTH)\)$/,
      )
      expect(inspect(error, { depth: 10, showHidden: true })).not.toMatch(/hunter|robert/)
    }
    expect(inspect(liveness, { depth: 10, showHidden: true })).not.toMatch(/hunter|robert/)
  })
})

describe('a Redis that cannot be used', () => {
  beforeEach(async () => {
    redis = await startRedis()
  })

  it('is refused at once for an invalid URL', () => {
    expect(() => new RedisLiveness('http://u:hunter2@a', 'sync')).toThrow(/^--redis: not the address of a Redis/)
  })

  it('is refused when it does not have the database, and no other database is used', async () => {
    const liveness = open(`${redis.url}/99`)
    for (let round = 0; round < 2; round++) {
      expect((await failure(liveness.publish(heartbeatOf('a')))).message).toMatch(
        /^--redis: .*DB index is out of range/,
      )
    }
    expect(await open().instances()).toEqual([])
  })

  it('is refused when it has no TLS and the URL requires TLS', async () => {
    const since = performance.now()
    const error = await failure(open(redis.url.replace('redis:', 'rediss:')).publish(heartbeatOf('a')))
    expect(error.message).toMatch(/^--redis: /)
    expect(performance.now() - since).toBeLessThan(2_500 * (await slowness()))
  })

  it('is refused with MetadataVersion when it contains a row of another version', async () => {
    const liveness = open()
    await liveness.publish(heartbeatOf('a'))
    const foreign = open(redis.url, 'sync')
    // A later version may write such a row.
    const later = { ...heartbeatOf('b'), partitions: 'all' as unknown as number[] }
    await foreign.publish(later)
    const error = await failure(liveness.instances())
    expect(error).toBeInstanceOf(FatalError)
    expect(error).toMatchObject({ failure: 'MetadataVersion' })
    await liveness.remove('b')
    expect(await liveness.instances()).toHaveLength(1)
  })
})
