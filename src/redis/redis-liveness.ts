import { randomUUID } from 'node:crypto'
import type { InstanceHeartbeat, Liveness, ObservedInstance } from '../coordination/liveness.ts'
import { inOrderOfIds, observedInstance, storedHeartbeat } from '../coordination/stored-heartbeat.ts'
import { parseRedisUrl, type RedisTls } from '../domain/redis-url.ts'
import { RedisConnection } from './redis-connection.ts'

/**
 * All rows expire this long after the last heartbeat of any instance, so that a shared Redis does not keep them
 * forever.
 */
const keepMS = 7 * 24 * 60 * 60 * 1_000

/**
 * A row is "<microseconds of Redis's clock> <JSON>". The two numbers of TIME are concatenated as text to keep every
 * digit.
 */
const storeHeartbeat = `
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], now[1] .. string.format('%06d', now[2]) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
`
const readAll = `
local now = redis.call('TIME')
return {now[1] .. string.format('%06d', now[2]), redis.call('HVALS', KEYS[1])}
`

/**
 * Failure detection through Redis (5.0 or later). It detects a failed instance sooner than the metadata database allows,
 * and carries notifications to the other instances at once. All times are those of Redis's clock. After a flush or a
 * restart of Redis, the next heartbeats restore the rows.
 *
 * Calls reject within about 2 s when Redis does not answer. The connections reconnect indefinitely.
 */
export class RedisLiveness implements Liveness {
  readonly ttlMS: number
  onNotified: (() => void) | null = null
  readonly inRounds = null
  readonly #commands: RedisConnection
  /** A separate connection, because Redis accepts no other commands on a connection that has subscribed. */
  readonly #notifications: RedisConnection
  readonly #members: string
  readonly #channel: string
  /** Distinguishes this instance's notifications from others'. */
  readonly #sender = randomUUID()

  /**
   * @param scope names the sync, because several syncs may share a Redis
   * @param options `ttlMS`: an instance whose newest heartbeat is older counts as lost
   * @throws when the URL is not valid
   */
  constructor(url: string, scope: string, { ttlMS = 3_000, tls = {} }: { ttlMS?: number; tls?: RedisTls } = {}) {
    const endpoint = parseRedisUrl(url)
    if ('problem' in endpoint) throw new Error(`--redis: ${endpoint.problem}`)
    this.ttlMS = ttlMS
    this.#members = `tandem:{${scope}}:members`
    this.#channel = `tandem:{${scope}}:notify`
    this.#notifications = new RedisConnection(endpoint, tls)
    // The notification connection sends no commands, so it cannot detect by itself that Redis no longer answers.
    this.#commands = new RedisConnection(endpoint, tls, () => this.#notifications.renew())
    this.#notifications.listen(this.#channel, (sender) => {
      if (sender !== this.#sender) this.onNotified?.()
    })
  }

  async publish(heartbeat: InstanceHeartbeat): Promise<void> {
    const row = JSON.stringify(storedHeartbeat(heartbeat))
    await this.#commands.send((redis) => redis.eval(storeHeartbeat, 1, this.#members, heartbeat.id, row, keepMS))
  }

  async instances(): Promise<ObservedInstance[]> {
    const reply = await this.#commands.send((redis) => redis.eval(readAll, 1, this.#members))
    const [now, rows] = reply as [string, string[]]
    return inOrderOfIds(
      rows.map((row) => {
        const space = row.indexOf(' ')
        const ageMS = (Number(now) - Number(row.slice(0, space))) / 1_000
        return observedInstance(parsed(row.slice(space + 1)), row.slice(0, space), ageMS, this.ttlMS)
      }),
    )
  }

  recentInstances(): null {
    return null
  }

  async remove(id: string): Promise<void> {
    await this.#commands.send((redis) => redis.hdel(this.#members, id))
  }

  notify(): void {
    void this.#commands.send((redis) => redis.publish(this.#channel, this.#sender)).catch(() => {})
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
    return null // `observedInstance` rejects it like a row of another version
  }
}
