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

/** Few names, so that a name comes back for another collection soon after it was dropped. */
export const workloadDatabases = ['harbour', 'ledger', 'people', 'x-files'] as const
export const workloadCollections = ['alpha', 'beta', 'gamma.one', 'Delta Ünï', 'system-like'] as const
export const workloadViews = ['view_one', 'view_two'] as const

/** Filled by `seedData`, large enough to be copied for a while: it is written to and renamed within, never dropped. */
export const archiveDatabase = 'archive'

interface WorldOptions {
  readonly huge: boolean
  readonly ddl: boolean
  readonly databases: readonly string[]
  readonly names: readonly string[]
  readonly sequence: { at: number }
  readonly mayRename?: MayRename | undefined
}

/** `from` is what the server itself renames: across databases, and for `$out`, a temporary collection beside the target. */
export type MayRename = (from: NamedCollection, to: NamedCollection) => boolean

/**
 * What the operations share: the one generator of chance and what the source holds by name. The catalog is listed again
 * after each change of it, in order of names, so equal servers give equal worlds and the seed decides all the rest.
 */
export class World {
  readonly client: MongoClient
  readonly random: Random
  readonly huge: boolean
  readonly ddl: boolean
  readonly databases: readonly string[]
  readonly names: readonly string[]
  readonly mayRename: MayRename
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
    this.mayRename = options.mayRename ?? (() => true)
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

  /** Without DDL every collection is there from the start. */
  async createFixed(): Promise<void> {
    for (const database of this.databases) {
      for (const name of this.names) {
        if (!this.knows(`${database}.${name}`)) await this.db(database).createCollection(name)
      }
    }
    await this.refresh()
  }

  /** Never the same twice: the values of `u`, which unique indexes are put on. */
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

  /** Where a document is written: mostly a collection that is there, else whatever stands or arises under a name. */
  dmlTarget(): KnownCollection {
    const capped = this.session === undefined
    const there = this.known.filter((one) => !one.view && (capped || !one.capped))
    const archive = there.filter((one) => one.database === archiveDatabase)
    const live = there.filter((one) => one.database !== archiveDatabase)
    if (archive.length > 0 && (live.length === 0 || this.random.chance(0.25))) return this.random.pick(archive)
    if (live.length > 0 && (!this.ddl || this.random.chance(0.97))) return this.random.pick(live)
    return this.anyName()
  }

  /** A collection for DDL; the archive only where nothing is destroyed. */
  existing(options: { archive: boolean; view?: boolean }): KnownCollection {
    const { archive, view = false } = options
    const there = this.known.filter((one) => one.view === view)
    const live = there.filter((one) => one.database !== archiveDatabase)
    const old = there.filter((one) => one.database === archiveDatabase)
    if (archive && old.length > 0 && this.random.chance(0.1)) return this.random.pick(old)
    return live.length > 0 ? this.random.pick(live) : this.anyName()
  }

  anyName(database = this.random.pick(this.databases)): KnownCollection {
    const name = this.random.pick(this.names)
    const known = this.known.find((one) => one.database === database && one.name === name)
    return known ?? { database, name, view: false, capped: false, clustered: false, collated: false }
  }
}

/** One thing the workload can do. A server error ends it half-way; the step counts it and goes on. */
export type Operation = (world: World) => Promise<void>
