import { type Document, MongoClient, MongoServerError, MongoServerSelectionError } from 'mongodb'
import { isUserDatabase } from '../domain/namespace.ts'
import { redactUris } from '../domain/uri-rules.ts'

/** The clusters could not be compared. The message says what to do and contains no connection string. */
export class InventoryError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(redactUris(message), options)
    this.name = 'InventoryError'
  }
}

const selectionTimeoutMS = 10_000
const authenticationFailed = 18
const unauthorized = 13

/** One of the two clusters. This class sends it no writes. */
export class InventoryCluster {
  readonly name: string
  readonly #client: MongoClient
  #databases: Promise<string[]> | null = null

  constructor(name: string, uri: string) {
    this.name = name
    try {
      this.#client = new MongoClient(uri, {
        appName: 'tandem inventory',
        serverSelectionTimeoutMS: selectionTimeoutMS,
        readPreference: 'primary',
      })
    } catch (error) {
      throw this.#toInventoryError(error)
    }
  }

  /** True if the connection leads to a router. Throws InventoryError if the cluster cannot be reached. */
  async isSharded(): Promise<boolean> {
    try {
      return (await this.#client.db('admin').command({ hello: 1 }))['msg'] === 'isdbgrid'
    } catch (error) {
      throw this.#toInventoryError(error)
    }
  }

  /**
   * Runs a command. Throws a server error unchanged, because the caller may expect it, except AuthenticationFailed,
   * which becomes an InventoryError like every other error.
   */
  async read(database: string, command: Document): Promise<Document> {
    return await this.#run(() => this.#client.db(database).command(command))
  }

  async aggregate(database: string, collection: string, pipeline: Document[]): Promise<Document[]> {
    return await this.#run(() => this.#client.db(database).collection(collection).aggregate(pipeline).toArray())
  }

  /** The names of all databases except the internal ones (`isUserDatabase`). */
  databases(): Promise<string[]> {
    this.#databases ??= this.read('admin', { listDatabases: 1, nameOnly: true, authorizedDatabases: false }).then(
      ({ databases }) => (databases as { name: string }[]).map(({ name }) => name).filter(isUserDatabase),
    )
    return this.#databases
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  async #run<Reply>(work: () => Promise<Reply>): Promise<Reply> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof MongoServerError && error.code !== authenticationFailed) throw error
      throw this.#toInventoryError(error)
    }
  }

  #toInventoryError(error: unknown): InventoryError {
    if (error instanceof InventoryError) return error
    const message = error instanceof Error ? error.message : String(error)
    const remedy =
      error instanceof MongoServerSelectionError
        ? 'cannot be reached; check its address and TLS options, and that it runs and has a primary'
        : (error as { code?: unknown }).code === authenticationFailed
          ? 'refuses the user; check the credentials'
          : 'cannot be read; fix the cause and run inventory again'
    return new InventoryError(`${this.name} ${remedy}: ${message}`, { cause: error })
  }
}

export function isUnauthorized(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === unauthorized
}

/**
 * Error codes which say that the server does not know the command, the stage or the parameter, or does not support it
 * in this topology: CommandNotFound, InvalidOptions, CommandNotSupported, SearchNotEnabled, an unknown stage, and
 * `$listSearchIndexes` without a search server.
 */
const unknownCodes = [59, 72, 115, 31082, 40324, 6047401]

export function isUnknown(error: unknown): boolean {
  return error instanceof MongoServerError && unknownCodes.includes(error.code as number)
}
