import { randomUUID } from 'node:crypto'
import type { InstanceHeartbeat, Liveness, SeenInstance } from '../coordination/liveness.ts'
import { inOrderOfIds, seenInstance, storedHeartbeat } from '../coordination/stored-heartbeat.ts'
import { parseRedisUrl, type RedisTls } from '../domain/redis-url.ts'
import { RedisConnection } from './redis-connection.ts'

/** A Redis shared with others is not littered for ever: rows go this long after the last beat of any instance. */
const keepMS = 7 * 24 * 60 * 60 * 1_000

/** A row is "<microseconds of Redis's clock> <JSON>". The two numbers of TIME are joined as text, to lose no digit. */
const storeBeat = `
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], now[1] .. string.format('%06d', now[2]) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
`
const readAll = `
local now = redis.call('TIME')
return {now[1] .. string.format('%06d', now[2]), redis.call('HVALS', KEYS[1])}
`

/**
 * Liveness in a Redis (5.0 or later), which notices a loss faster than the metadata database and tells others at once.
 * Time is Redis's. What is lost with it (a flush, a restart) comes back with the next beats.
 *
 * Calls reject within about 2 s when Redis does not answer; the connections are made again for ever by themselves.
 */
export class RedisLiveness implements Liveness {
  readonly ttlMS: number
  onNotified: (() => void) | null = null
  readonly #commands: RedisConnection
  /** Redis answers no other commands on a connection that has subscribed. */
  readonly #notifications: RedisConnection
  readonly #members: string
  readonly #channel: string
  /** Tells own notifications from others'. */
  readonly #sender = randomUUID()

  /** `scope` names the sync, for several may share a Redis. `ttlMS`: ms. Throws when the URL may not be used. */
  constructor(url: string, scope: string, { ttlMS = 3_000, tls = {} }: { ttlMS?: number; tls?: RedisTls } = {}) {
    const endpoint = parseRedisUrl(url)
    if ('problem' in endpoint) throw new Error(`--redis: ${endpoint.problem}`)
    this.ttlMS = ttlMS
    this.#members = `tandem:{${scope}}:members`
    this.#channel = `tandem:{${scope}}:notify`
    this.#notifications = new RedisConnection(endpoint, tls)
    // Nothing is asked on the other connection by which it would notice that Redis is gone.
    this.#commands = new RedisConnection(endpoint, tls, () => this.#notifications.renew())
    this.#notifications.listen(this.#channel, (sender) => {
      if (sender !== this.#sender) this.onNotified?.()
    })
  }

  async publish(beat: InstanceHeartbeat): Promise<void> {
    const row = JSON.stringify(storedHeartbeat(beat))
    await this.#commands.ask((redis) => redis.eval(storeBeat, 1, this.#members, beat.id, row, keepMS))
  }

  async instances(): Promise<SeenInstance[]> {
    const reply = await this.#commands.ask((redis) => redis.eval(readAll, 1, this.#members))
    const [now, rows] = reply as [string, string[]]
    return inOrderOfIds(
      rows.map((row) => {
        const space = row.indexOf(' ')
        const ageMS = (Number(now) - Number(row.slice(0, space))) / 1_000
        return seenInstance(parsed(row.slice(space + 1)), ageMS, this.ttlMS)
      }),
    )
  }

  async forget(id: string): Promise<void> {
    await this.#commands.ask((redis) => redis.hdel(this.#members, id))
  }

  notify(): void {
    void this.#commands.ask((redis) => redis.publish(this.#channel, this.#sender)).catch(() => {})
  }

  async close(): Promise<void> {
    this.onNotified = null
    this.#commands.close()
    this.#notifications.close()
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return null // refused by name, like any row of another version
  }
}
