import type { Document } from 'mongodb'
import { alignDocuments, type Findings } from './align-documents.ts'
import { type AuditCluster, AuditError, type Order } from './audit-cluster.ts'
import {
  type ComparedIndexes,
  collationOf,
  compareIndexes,
  compareOptions,
  isCapped,
  type Listed,
  sameCollation,
} from './audit-definitions.ts'
import { type Difference, Differences } from './difference.ts'
import { sameIdBytes, shownId } from './document-id.ts'
import type { DocumentStream } from './document-stream.ts'
import { firstDifference } from './first-difference.ts'
import { firstOutOfOrder, Unpaired } from './natural-order.ts'
import type { Renamed } from './renamed-databases.ts'
import { type Namespace, selects } from './selection.ts'
import { compareShards } from './shard-indexes.ts'

export interface AuditOptions {
  /** The namespaces to compare. If the list is empty, all user databases are compared. */
  namespaces: readonly Namespace[]
  /** Namespaces to leave out of the comparison. */
  excluded?: readonly Namespace[]
  /** True to skip time-series collections. Otherwise, a selected time-series collection ends the comparison with an error. */
  skipTimeSeries?: boolean
  /** True to compare no index except that of `_id`. */
  ignoreIndexes: boolean
  /** True to compare no index with a hashed field. */
  ignoreHashedIndexes?: boolean
  /** Maximum number of differences that are listed. All are counted. */
  maxDifferences: number
  /** Called often while documents are read. */
  onProgress?: (progress: AuditProgress) => void
}

export interface AuditProgress {
  namespace: string
  /** Number of documents read, in total from both clusters. */
  documents: number
  bytes: number
  differences: number
}

export interface AuditReport {
  equal: boolean
  /** Number of all differences, including those that are not listed. */
  totalDifferences: number
  /** True if not all differences are listed. */
  truncated: boolean
  differences: Difference[]
  /** Number of collections whose documents were compared. */
  collections: number
  views: number
  /** Number of documents read from each cluster. */
  documents: PerCluster
  /** Number of bytes of BSON read from each cluster. */
  bytes: PerCluster
  durationSeconds: number
}

interface PerCluster {
  cluster0: number
  cluster1: number
}

interface Task {
  database: string
  ours: Listed
  theirs: Listed
}

/**
 * Compares two clusters that receive no writes. It reads both by plain commands: first the collections and their
 * options, and then, for each collection, its indexes and all of its documents in `_id` order. It reads capped
 * collections in natural order too. It keeps no state, and it shares no comparison code with the copy and the event
 * application.
 * @throws AuditError if the comparison is not possible
 */
export async function audit(left: AuditCluster, right: AuditCluster, options: AuditOptions): Promise<AuditReport> {
  return await new Audit(left, right, options).run()
}

class Audit {
  readonly #left: AuditCluster
  readonly #right: AuditCluster
  readonly #options: AuditOptions
  readonly #differences: Differences
  readonly #began = performance.now()
  #collections = 0
  #views = 0
  readonly #documents: PerCluster = { cluster0: 0, cluster1: 0 }
  readonly #bytes: PerCluster = { cluster0: 0, cluster1: 0 }

  constructor(left: AuditCluster, right: AuditCluster, options: AuditOptions) {
    this.#left = left
    this.#right = right
    this.#options = options
    this.#differences = new Differences(options.maxDifferences)
  }

  async run(): Promise<AuditReport> {
    await this.#refuseOneCluster()
    const tasks: Task[] = []
    const notFound = new Set(this.#options.namespaces)
    const databases = await this.#databases()
    this.#refuseUnpaired(databases)
    this.#refuseUncompared(databases)
    const uncompared = new Set(this.#right.names.collections)
    for (const database of databases) tasks.push(...(await this.#compareDatabase(database, notFound, uncompared)))
    this.#refuseUncomparedCollections(uncompared)
    const [absent] = notFound
    if (absent) {
      const name = absent.collection === null ? absent.database : `${absent.database}.${absent.collection}`
      throw new AuditError(`--namespace ${name} is on neither cluster; check its spelling`)
    }
    for (const task of tasks) await this.#compareCollection(task)
    return this.#report()
  }

  /**
   * Throws AuditError if both connection strings lead to the same server process, because the comparison of a cluster
   * with itself would prove nothing. It does not recognize a cluster by two of its routers.
   */
  async #refuseOneCluster(): Promise<void> {
    const [ours, theirs] = await Promise.all([this.#left.processId(), this.#right.processId()])
    if (ours === theirs && ours !== 'undefined') {
      throw new AuditError(
        'both connection strings lead to the same server; give the connection strings of two clusters',
      )
    }
  }

  /** A database of cluster1 that has the name of a renamed one is not its partner. */
  #refuseUnpaired(databases: readonly string[]): void {
    const found = this.#right.names.unpaired.find(({ from }) => databases.includes(from))
    if (!found) return
    throw new AuditError(
      `${found.from} on cluster0 and ${found.to} on cluster1 have no partner, because --remap gives their names to others; leave both out with --excludeNamespace ${found.from}`,
    )
  }

  /** A renamed database that is not compared is a mistake in the names or in their direction. It must not count as equal. */
  #refuseUncompared(databases: readonly string[]): void {
    if (this.#options.namespaces.length > 0) return
    const found = this.#right.names.renamed.find(({ from }) => !databases.includes(from))
    if (!found) return
    const { from, to } = found
    throw new AuditError(
      `--remap ${from}=${to}: neither ${from} on cluster0 nor ${to} on cluster1 is compared; check the spelling and --excludeNamespace. The first name is that on cluster0: if cluster1 is the source of the sync, give --remap ${to}=${from}`,
    )
  }

  /** Does for collections what `#refuseUncompared` does for databases. */
  #refuseUncomparedCollections(uncompared: ReadonlySet<Renamed>): void {
    const [found] = uncompared
    if (!found || this.#options.namespaces.length > 0) return
    const { from, to } = found
    throw new AuditError(
      `--remap ${from}=${to}: neither ${from} on cluster0 nor ${to} on cluster1 is compared; check the spelling and --excludeNamespace. The first name is that on cluster0: if cluster1 is the source of the sync, give --remap ${to}=${from}`,
    )
  }

  #comparedIndexes(): ComparedIndexes {
    if (this.#options.ignoreIndexes) return 'id'
    return this.#options.ignoreHashedIndexes ? 'unhashed' : 'all'
  }

  async #databases(): Promise<string[]> {
    const { namespaces, excluded } = this.#options
    // Databases that are given by name are not listed, so the user then needs no privilege to list all databases.
    if (namespaces.length > 0) return [...new Set(namespaces.map(({ database }) => database))].sort()
    const listed = await Promise.all([this.#left.databases(), this.#right.databases()])
    return [...new Set(listed.flat())].filter((database) => selects([], database, undefined, excluded)).sort()
  }

  /**
   * Compares the collections, views and options of a database. Removes from `notFound` the namespaces that exist, and from
   * `uncompared` the renamed collections that exist.
   * Returns the collections whose indexes and documents must still be compared.
   */
  async #compareDatabase(database: string, notFound: Set<Namespace>, uncompared: Set<Renamed>): Promise<Task[]> {
    const [ours, theirs] = await Promise.all([this.#listed(this.#left, database), this.#listed(this.#right, database)])
    const tasks: Task[] = []
    for (const name of [...new Set([...ours.keys(), ...theirs.keys()])].sort()) {
      for (const wanted of notFound) if (selects([wanted], database, name)) notFound.delete(wanted)
      const [a, b] = [ours.get(name), theirs.get(name)]
      const namespace = `${database}.${name}`
      for (const one of uncompared) if (one.from === namespace) uncompared.delete(one)
      const unpaired = this.#right.names.unpairedCollections.find(({ from }) => from === namespace)
      if (unpaired)
        throw new AuditError(
          `${unpaired.from} on cluster0 and ${unpaired.to} on cluster1 have no partner, because --remap gives their names to others; leave both out with --excludeNamespace ${unpaired.from}`,
        )
      if (a?.type === 'timeseries' || b?.type === 'timeseries') {
        throw new AuditError(
          `${namespace} is a time-series collection, which verify cannot compare; leave all of them out with --timeseries skip`,
        )
      }
      if (!a || !b) {
        const what = (a ?? b)?.type === 'view' ? 'view' : 'collection'
        this.#add({ namespace, what, how: a ? 'missing' : 'extra' })
      } else if (a.type !== b.type) this.#add({ namespace, what: 'type', how: 'different' })
      else {
        for (const difference of compareOptions(namespace, a, b)) this.#add(difference)
        if (a.type === 'view') this.#views += 1
        else tasks.push({ database, ours: a, theirs: b })
      }
    }
    return tasks
  }

  async #listed(cluster: AuditCluster, database: string): Promise<Map<string, Listed>> {
    const { namespaces, excluded, skipTimeSeries } = this.#options
    const listed = await cluster.collections(database)
    const isCompared = ({ name, type }: Listed): boolean =>
      selects(namespaces, database, name, excluded) && !(skipTimeSeries && type === 'timeseries')
    return new Map(listed.filter(isCompared).map((one) => [one.name, one]))
  }

  async #compareCollection({ database, ours, theirs }: Task): Promise<void> {
    const { name } = ours
    const namespace = `${database}.${name}`
    const indexes = await Promise.all([this.#left.indexes(database, name), this.#right.indexes(database, name)])
    for (const difference of compareIndexes(namespace, ...indexes, this.#comparedIndexes())) this.#add(difference)
    if (this.#comparedIndexes() !== 'id') await this.#compareShards(database, name)

    const collation = collationOf(ours)
    const simple = !sameCollation(ours, theirs)
    const unpaired = isCapped(ours) && isCapped(theirs) ? new Unpaired() : null
    await this.#reading(database, name, { by: '_id', simple }, async (left, right) => {
      await alignDocuments(left, right, {
        collated: collation !== undefined && !simple,
        find: (ids) => this.#left.documentsById(database, name, ids, simple),
        found: this.#findings(namespace, unpaired),
      })
      this.#documents.cluster0 += left.documents
      this.#documents.cluster1 += right.documents
      this.#bytes.cluster0 += left.bytes
      this.#bytes.cluster1 += right.bytes
    })
    if (unpaired && !unpaired.overflowed) {
      await this.#reading(database, name, { by: 'natural' }, async (left, right) => {
        const document = await firstOutOfOrder(left, right, unpaired)
        if (document) this.#add({ namespace, what: 'order', how: 'different', id: shownId(document) })
      })
    }
    this.#collections += 1
  }

  /** Compares the indexes between the shards of each cluster, because the router lists those of one shard alone. */
  async #compareShards(database: string, name: string): Promise<void> {
    const isHashed = (key: Document): boolean => Object.values(key).includes('hashed')
    const isCompared = (key: Document): boolean => this.#comparedIndexes() === 'all' || !isHashed(key)
    for (const cluster of [this.#left, this.#right]) {
      const found = await cluster.indexesOnShards(database, name)
      if (!found) continue
      for (const one of compareShards(`${database}.${name}`, cluster.name, found, isCompared)) this.#add(one)
    }
  }

  /** @param unpaired receives the documents that the comparison of natural order must skip */
  #findings(namespace: string, unpaired: Unpaired | null): Findings {
    return {
      missing: (document) => {
        unpaired?.add('left', document)
        this.#differences.add(() => ({ namespace, what: 'document', how: 'missing', id: shownId(document) }))
      },
      extra: (document) => {
        unpaired?.add('right', document)
        this.#differences.add(() => ({ namespace, what: 'document', how: 'extra', id: shownId(document) }))
      },
      different: (ours, theirs) => {
        // Under a collation, one `_id` can have several encodings, and the comparison of natural order would not match them.
        if (unpaired && !sameIdBytes(ours, theirs)) {
          unpaired.add('left', ours)
          unpaired.add('right', theirs)
        }
        this.#differences.add(() => {
          const field = firstDifference(ours, theirs)
          return { namespace, what: 'document', how: 'different', id: shownId(ours), field }
        })
      },
    }
  }

  async #reading(
    database: string,
    name: string,
    order: Order,
    work: (left: DocumentStream, right: DocumentStream) => Promise<void>,
  ): Promise<void> {
    const left = this.#left.stream(database, name, order)
    const right = this.#right.stream(database, name, order)
    const { onProgress } = this.#options
    const progress = (): void => {
      onProgress?.({
        namespace: `${database}.${name}`,
        documents: this.#documents.cluster0 + this.#documents.cluster1 + left.stream.documents + right.stream.documents,
        bytes: this.#bytes.cluster0 + this.#bytes.cluster1 + left.stream.bytes + right.stream.bytes,
        differences: this.#differences.total,
      })
    }
    progress()
    const timer = setInterval(progress, progressIntervalMS)
    try {
      await work(left.stream, right.stream)
    } finally {
      clearInterval(timer)
      await Promise.all([left.close(), right.close()])
    }
  }

  #add(difference: Difference): void {
    this.#differences.add(() => difference)
  }

  #report(): AuditReport {
    const { total, list } = this.#differences
    return {
      equal: total === 0,
      totalDifferences: total,
      truncated: total > list.length,
      differences: list,
      collections: this.#collections,
      views: this.#views,
      documents: this.#documents,
      bytes: this.#bytes,
      durationSeconds: Math.round(performance.now() - this.#began) / 1_000,
    }
  }
}

/** In milliseconds. This is more frequent than needed, because the printer decides how often it prints. */
const progressIntervalMS = 500
