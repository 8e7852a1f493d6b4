import { once } from 'node:events'
import { Redis } from 'ioredis'
import type { RedisEndpoint, RedisTls } from '../domain/redis-url.ts'
import { redactUris } from '../domain/uri-rules.ts'

/** Waiting for a connection, and for the reply to a command: a call takes twice this at most. */
const patienceMS = 1_000
const longestReconnectDelayMS = 1_000

/** A connection that is made again for ever, while every call on it ends soon, with a result or an error. */
export class RedisConnection {
  readonly #redis: Redis
  /** Why there is no connection; null while there is one. */
  #trouble: unknown = null
  /** The client goes on in database 0 when Redis refuses the one it was given. We do not. */
  #databaseRefused: Error | null = null
  #closed = false
  /** Shared by all calls that wait. */
  #connecting: Promise<void> | null = null
  readonly #onSilence: () => void

  /** `onSilence` is called when a command was not answered in time. */
  constructor(endpoint: RedisEndpoint, tls: RedisTls = {}, onSilence: () => void = () => {}) {
    const { host, port, username, password, database } = endpoint
    this.#onSilence = onSilence
    this.#redis = new Redis({
      host,
      port,
      ...(username === null ? {} : { username }),
      ...(password === null ? {} : { password }),
      ...(endpoint.tls ? { tls: { ...tls, minVersion: 'TLSv1.2' } } : {}),
      db: database,
      // All that we ask is in RESP2, which every version speaks.
      protocol: 2,
      connectTimeout: 2 * patienceMS,
      commandTimeout: patienceMS,
      disconnectTimeout: 100,
      keepAlive: 5_000,
      retryStrategy: (attempt) => Math.min(attempt * 50, longestReconnectDelayMS) * (0.5 + Math.random() / 2),
      // A beat is worth nothing later: neither kept until there is a connection nor sent again over the next one.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      autoResubscribe: false,
      // It would print to the console when the user may not do it; a server that is loading refuses commands anyway.
      enableReadyCheck: false,
      disableClientInfo: true,
      // The primary has become a replica: its name may lead to the new one.
      reconnectOnError: (error) => error.message.startsWith('READONLY'),
    })
    this.#redis.on('ready', () => {
      this.#trouble = null
    })
    this.#redis.on('connect', () => {
      this.#databaseRefused = null
    })
    this.#redis.on('error', (error: Error & { command?: { name: string } }) => {
      this.#trouble = error
      if (error.command?.name === 'select') this.#databaseRefused = error
    })
  }

  /** Waits for the connection, briefly, and sends. Errors name `--redis` and hold nothing of its URL's credentials. */
  async ask<T>(command: (redis: Redis) => Promise<T>): Promise<T> {
    try {
      if (this.#closed) throw new Error('closed')
      if (this.#redis.status !== 'ready') {
        this.#connecting ??= this.#connected().finally(() => {
          this.#connecting = null
        })
        await this.#connecting
      }
      if (this.#databaseRefused) throw this.#databaseRefused
      return await command(this.#redis)
    } catch (error) {
      if (messageOf(error) === 'Command timed out') {
        // A half-open socket never answers; the system would take a quarter of an hour to say so.
        this.renew()
        this.#onSilence()
      }
      // Not as `cause`: the client's errors carry the command they belong to, and that may be AUTH.
      throw new Error(`--redis: ${explain(error)}`)
    }
  }

  /** Subscribes now and after every reconnection. Best effort: without the right to, nothing is ever heard. */
  listen(channel: string, heard: (message: string) => void): void {
    this.#redis.on('message', (_, message) => heard(message))
    const subscribe = () => void this.#redis.subscribe(channel).catch(() => {})
    this.#redis.on('ready', subscribe)
    if (this.#redis.status === 'ready') subscribe()
  }

  /** Replaces the connection. One that is only being made is left alone: the client would give up for good. */
  renew(): void {
    if (!this.#closed && this.#redis.status === 'ready') this.#redis.disconnect(true)
  }

  close(): void {
    this.#closed = true
    this.#redis.disconnect()
  }

  async #connected(): Promise<void> {
    try {
      await once(this.#redis, 'ready', { signal: AbortSignal.timeout(patienceMS) })
    } catch (error) {
      throw this.#trouble ?? (isAbort(error) ? new Error('no connection in time') : error)
    }
  }
}

/** How the client says that a connection ended before the command was sent, or before its reply. */
const lostWords = /^(Stream isn't writeable|Connection is closed|Reached the max retries|Command aborted due to)/

function explain(error: unknown): string {
  const message = messageOf(error)
  const refusal = /^(WRONGPASS|NOAUTH|NOPERM)\b/.exec(message)?.[1]
  if (refusal === 'NOPERM')
    return 'the user may not do what tandem needs: EVAL, PUBLISH, SUBSCRIBE, keys tandem:* (NOPERM)'
  if (refusal || /invalid password/.test(message)) {
    return `Redis refused the user name or password of the URL${refusal ? ` (${refusal})` : ''}`
  }
  if (lostWords.test(message)) return 'the connection to Redis was lost'
  return `Redis does not answer as it should: ${redactUris(message)}`
}

/** A host with several addresses gives an AggregateError without a message. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.message || ((error as NodeJS.ErrnoException).code ?? error.name)
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError'
}
