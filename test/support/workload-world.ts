import type { ClientSession, Collection, Db, Document, MongoClient } from 'mongodb'
import type { Random } from './random.ts'

export interface KnownCollection {
  readonly database: string
  readonly name: string
  readonly view: boolean
  readonly capped: boolean
  readonly clustered: boolean
  readonly collated: boolean
}

export interface NamedCollection {
  readonly database: string
  readonly name: string
}

/** There are few names, so that a dropped name is soon reused for another collection. */
export const workloadDatabases = ['harbour', 'ledger', 'people', 'x-files'] as const
export const workloadCollections = ['alpha', 'beta', 'gamma.one', 'Delta Ünï', 'system-like'] as const
export const workloadViews = ['view_one', 'view_two'] as const

/**
 * `seedData` fills this database with enough data to take a while to copy. The workload writes to the database and
 * renames its collections, but never drops them.
 */
export const archiveDatabase = 'archive'

interface WorldOptions {
  readonly huge: boolean
  readonly ddl: boolean
  readonly databases: readonly string[]
  readonly names: readonly string[]
  readonly sequence: { at: number }
}

/**
 * The state that the operations share: the random generator and the source's collections. The catalog is listed again after
 * each change of it and sorted by name, so equal servers give equal worlds, and the seed determines everything else.
 */
export class World {
  readonly client: MongoClient
  readonly random: Random
  readonly huge: boolean
  readonly ddl: boolean
  readonly databases: readonly string[]
  readonly names: readonly string[]
  known: KnownCollection[] = []
  session: ClientSession | undefined
  target = ''
  private readonly sequence: { at: number }

  constructor(client: MongoClient, random: Random, options: WorldOptions) {
    this.client = client
    this.random = random
    this.huge = options.huge
    this.ddl = options.ddl
    this.databases = options.databases
    this.names = options.names
    this.sequence = options.sequence
  }

  async refresh(): Promise<void> {
    const known: KnownCollection[] = []
    for (const database of [...this.databases, archiveDatabase]) {
      const listed = await this.client.db(database).listCollections().toArray()
      for (const { name, type, options } of listed.sort((a, b) => (a.name < b.name ? -1 : 1)) as Document[]) {
        if (name.startsWith('system.')) continue
        known.push({
          database,
          name,
          view: type === 'view',
          capped: options?.capped === true,
          clustered: options?.clusteredIndex !== undefined,
          collated: options?.collation !== undefined,
        })
      }
    }
    this.known = known
  }

  knows(namespace: string): boolean {
    return this.known.some(({ database, name }) => `${database}.${name}` === namespace)
  }

  /** Creates all collections, for a workload without DDL. */
  async createFixed(): Promise<void> {
    for (const database of this.databases) {
      for (const name of this.names) {
        if (!this.knows(`${database}.${name}`)) await this.db(database).createCollection(name)
      }
    }
    await this.refresh()
  }

  /** Returns a number that was never returned before, for the values of `u`, which has unique indexes. */
  next(): number {
    return this.sequence.at++
  }

  mark(): () => void {
    const { at } = this.sequence
    const restore = this.random.mark()
    return () => {
      this.sequence.at = at
      restore()
    }
  }

  db(name: string): Db {
    return this.client.db(name)
  }

  collection({ database, name }: { database: string; name: string }): Collection {
    this.target = `${database}.${name}`
    return this.db(database).collection(name)
  }

  get inSession(): { session?: ClientSession } {
    return this.session ? { session: this.session } : {}
  }

  /** Returns the target of a document write: usually an existing collection, otherwise any name, which may not exist yet. */
  dmlTarget(): KnownCollection {
    const capped = this.session === undefined
    const candidates = this.known.filter((one) => !one.view && (capped || !one.capped))
    const archive = candidates.filter((one) => one.database === archiveDatabase)
    const live = candidates.filter((one) => one.database !== archiveDatabase)
    if (archive.length > 0 && (live.length === 0 || this.random.chance(0.25))) return this.random.pick(archive)
    if (live.length > 0 && (!this.ddl || this.random.chance(0.97))) return this.random.pick(live)
    return this.anyName()
  }

  /** Returns an existing collection or view for DDL. Callers exclude the archive for commands that drop data. */
  existing(options: { archive: boolean; view?: boolean }): KnownCollection {
    const { archive, view = false } = options
    const candidates = this.known.filter((one) => one.view === view)
    const live = candidates.filter((one) => one.database !== archiveDatabase)
    const archived = candidates.filter((one) => one.database === archiveDatabase)
    if (archive && archived.length > 0 && this.random.chance(0.1)) return this.random.pick(archived)
    return live.length > 0 ? this.random.pick(live) : this.anyName()
  }

  anyName(database = this.random.pick(this.databases)): KnownCollection {
    const name = this.random.pick(this.names)
    const known = this.known.find((one) => one.database === database && one.name === name)
    return known ?? { database, name, view: false, capped: false, clustered: false, collated: false }
  }
}

/**
 * One operation of the workload. A server error may end it before it is complete; the step then counts the error and the
 * workload continues.
 */
export type Operation = (world: World) => Promise<void>
