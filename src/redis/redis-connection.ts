import { once } from 'node:events'
import { Redis } from 'ioredis'
import type { RedisEndpoint, RedisTls } from '../domain/redis-url.ts'
import { redactUris } from '../domain/uri-rules.ts'

/** How long a call waits for the connection, and then for the reply. A call takes at most twice this long. */
const answerTimeoutMS = 1_000
const longestReconnectDelayMS = 1_000

/** A connection that reconnects indefinitely. Every call on it ends soon, with a result or an error. */
export class RedisConnection {
  readonly #redis: Redis
  /** The last error of the connection. Null while it is connected. */
  #lastError: unknown = null
  /** The client continues in database 0 when Redis rejects the configured one. This class reports the error instead. */
  #databaseRefused: Error | null = null
  #closed = false
  /** The wait for a connection, shared by all callers; null when none is in progress. */
  #connecting: Promise<void> | null = null
  readonly #onTimeout: () => void

  /** @param onTimeout called when a command was not answered in time */
  constructor(endpoint: RedisEndpoint, tls: RedisTls = {}, onTimeout: () => void = () => {}) {
    const { host, port, username, password, database } = endpoint
    this.#onTimeout = onTimeout
    this.#redis = new Redis({
      host,
      port,
      ...(username === null ? {} : { username }),
      ...(password === null ? {} : { password }),
      ...(endpoint.tls ? { tls: { ...tls, minVersion: 'TLSv1.2' } } : {}),
      db: database,
      // RESP2 is sufficient, and every version supports it.
      protocol: 2,
      connectTimeout: 2 * answerTimeoutMS,
      commandTimeout: answerTimeoutMS,
      disconnectTimeout: 100,
      keepAlive: 5_000,
      retryStrategy: (attempt) => Math.min(attempt * 50, longestReconnectDelayMS) * (0.5 + Math.random() / 2),
      // A late heartbeat has no value, so commands are neither queued while disconnected nor sent again after a
      // reconnection.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      autoResubscribe: false,
      // With these checks, the client would print to the console when the user lacks their privileges. They are not
      // needed, because a server that is loading rejects commands anyway.
      enableReadyCheck: false,
      disableClientInfo: true,
      // READONLY: the primary has become a replica. A new connection to the same host name may reach the new primary.
      reconnectOnError: (error) => error.message.startsWith('READONLY'),
    })
    this.#redis.on('ready', () => {
      this.#lastError = null
    })
    this.#redis.on('connect', () => {
      this.#databaseRefused = null
    })
    this.#redis.on('error', (error: Error & { command?: { name: string } }) => {
      this.#lastError = error
      if (error.command?.name === 'select') this.#databaseRefused = error
    })
  }

  /**
   * Waits briefly for the connection and sends the command. Errors name `--redis` and contain no credentials of its
   * URL.
   */
  async send<T>(command: (redis: Redis) => Promise<T>): Promise<T> {
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
        // A half-open socket never answers, and the operating system would report it only after a quarter of an hour.
        this.renew()
        this.#onTimeout()
      }
      // The original error is not passed on as `cause`: it carries its command, which may be AUTH.
      throw new Error(`--redis: ${explain(error)}`)
    }
  }

  /**
   * Subscribes now and after every reconnection. A failure is ignored: without the privilege to subscribe, no message
   * arrives.
   */
  listen(channel: string, onMessage: (message: string) => void): void {
    this.#redis.on('message', (_, message) => onMessage(message))
    const subscribe = () => void this.#redis.subscribe(channel).catch(() => {})
    this.#redis.on('ready', subscribe)
    if (this.#redis.status === 'ready') subscribe()
  }

  /**
   * Replaces an established connection. Does nothing while a connection is being established, because the client would
   * then stop reconnecting.
   */
  renew(): void {
    if (!this.#closed && this.#redis.status === 'ready') this.#redis.disconnect(true)
  }

  close(): void {
    this.#closed = true
    this.#redis.disconnect()
  }

  async #connected(): Promise<void> {
    try {
      await once(this.#redis, 'ready', { signal: AbortSignal.timeout(answerTimeoutMS) })
    } catch (error) {
      throw this.#lastError ?? (isAbort(error) ? new Error('no connection in time') : error)
    }
  }
}

/** The client's messages for a connection that ended before the command was sent, or before its reply arrived. */
const lostConnection = /^(Stream isn't writeable|Connection is closed|Reached the max retries|Command aborted due to)/

function explain(error: unknown): string {
  const message = messageOf(error)
  const refusal = /^(WRONGPASS|NOAUTH|NOPERM)\b/.exec(message)?.[1]
  if (refusal === 'NOPERM')
    return 'the user lacks permissions that tandem needs: EVAL, PUBLISH, SUBSCRIBE, keys tandem:* (NOPERM)'
  if (refusal || /invalid password/.test(message)) {
    return `Redis refused the user name or password of the URL${refusal ? ` (${refusal})` : ''}`
  }
  if (lostConnection.test(message)) return 'the connection to Redis was lost'
  return `Redis returned an unexpected error: ${redactUris(message)}`
}

/** A host with several addresses gives an AggregateError without a message. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.message || ((error as NodeJS.ErrnoException).code ?? error.name)
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError'
}
