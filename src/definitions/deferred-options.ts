import { BSON, type Document, Long } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import {
  collectionExpiry,
  type DeferredIndexOptions,
  deferredOptionsOf,
  hasMaximum,
  type IndexSpecification,
  indexName,
  isCapped,
  largestCappedBytes,
  neverExpires,
  sameNumber,
} from '../domain/definition.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError, StoppedError } from '../domain/errors.ts'
import {
  deferredOptionsOn,
  type ExistingDefinition,
  foundSpecifications,
  isIncomplete,
} from '../domain/existing-indexes.ts'
import { inParallel } from '../domain/in-parallel.ts'
import { namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import { fieldNamed, numberOf } from '../domain/raw-bson.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { underPresentName } from '../mongo/collection-name.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import { toUuid } from '../mongo/uuid.ts'
import { readDefinitionsOf } from './list-catalog.ts'
import { readUnevenIndexes } from './shard-indexes.ts'

/** The definitions that exist on the destination, by UUID. A dropped collection has no entry. */
export type ExistingDefinitions = ReadonlyMap<string, ExistingDefinition>

/** A change to one index or to the options of one collection. */
interface Change {
  entry: CatalogEntry
  run: () => Promise<unknown>
}

/** Number of changes that run in parallel. Each waits for a majority acknowledgement. */
const changesAtOnce = 32
/** Number of conversions to unique that run in parallel. Each scans its whole index. */
const conversionsAtOnce = 4

/**
 * Restores the deferred options at commit (capped sizes, TTL, hidden, prepareUnique and unique), and defers them again.
 * Each step reads the existing definitions once, decides in memory which collections need a change, and changes those
 * in parallel. Each step can therefore be repeated after a crash. Collections and indexes that no longer exist are
 * skipped. collMod changes an index on all shards, and fails if one of them does not have the index.
 */
export class DeferredOptions {
  readonly #cluster: Cluster
  readonly #context: RetryContext
  constructor(destination: Cluster, context: RetryContext) {
    this.#cluster = destination
    this.#context = context
  }

  /** Reads the existing definitions of these collections. */
  read(entries: CatalogEntry[]): Promise<ExistingDefinitions> {
    const wanted = entries.flatMap(({ database, destinationUUID: uuid }) => (uuid ? [{ database, uuid }] : []))
    return retry('reading definitions of the destination', this.#context, () =>
      readDefinitionsOf(this.#cluster, wanted, 'everyShard'),
    )
  }

  /** Restores the size and the document limit of capped collections (collMod cappedSize and cappedMax, 6.0 and later). */
  async restoreCapped(entries: CatalogEntry[], known?: ExistingDefinitions): Promise<void> {
    const capped = entries.filter(({ wanted }) => isCapped(wanted.options))
    const changes = await this.#changes(capped, known, (entry, { options }) => {
      const size = fieldNamed(entry.wanted.options, 'size')
      const max = fieldNamed(entry.wanted.options, 'max')
      const change: Document = {}
      if (size && !sameNumber(size, fieldNamed(options, 'size'))) change['cappedSize'] = new RawValue(size)
      if (max && numberOf(max) !== 0 && !sameNumber(max, fieldNamed(options, 'max'))) {
        change['cappedMax'] = new RawValue(max)
      }
      return Object.keys(change).length > 0 ? [() => this.#collMod(entry, change)] : []
    })
    await this.#run(changes)
  }

  /** Sets prepareUnique before writes are enabled, so that the destination rejects duplicates from then on. */
  async prepareIndexes(entries: CatalogEntry[], known?: ExistingDefinitions): Promise<void> {
    const changes = await this.#indexChanges(entries, known, isUnique, 'restoring', (entry, wanted, have) => {
      if (have.unique || have.prepareUnique) return []
      return [() => this.#modify(entry, wanted, { prepareUnique: true })]
    })
    await this.#run(changes)
  }

  /** Restores TTL. Runs after the last comparison, because the two clusters expire documents at different times. */
  async restoreExpiry(entries: CatalogEntry[], known?: ExistingDefinitions): Promise<void> {
    const changes = await this.#indexChanges(entries, known, expires, 'restoring', (entry, wanted, have) => {
      const { expireAfterSeconds } = deferredOptionsOf(wanted)
      if (!expireAfterSeconds || sameNumber(expireAfterSeconds, have.expireAfterSeconds)) return []
      return [() => this.#modify(entry, wanted, { expireAfterSeconds: new RawValue(expireAfterSeconds) })]
    })
    const clustered = entries.filter(({ wanted }) => collectionExpiry(wanted.options))
    const ofCollections = await this.#changes(clustered, known, (entry, { options }) => {
      const wanted = collectionExpiry(entry.wanted.options)
      if (!wanted || sameNumber(wanted, collectionExpiry(options))) return []
      return [() => this.#collMod(entry, { expireAfterSeconds: new RawValue(wanted) })]
    })
    await this.#run([...changes, ...ofCollections])
  }

  /** Undoes restoreExpiry. */
  async deferExpiry(entries: CatalogEntry[], known?: ExistingDefinitions): Promise<void> {
    const changes = await this.#indexChanges(
      ...([entries, known, everyIndex, 'deferring'] as const),
      (entry, wanted, { expireAfterSeconds }) => {
        if (!expireAfterSeconds || numberOf(expireAfterSeconds) === neverExpires) return []
        return [() => this.#modify(entry, wanted, { expireAfterSeconds: neverExpires })]
      },
    )
    const clustered = entries.filter(({ wanted }) => fieldNamed(wanted.options, 'clusteredIndex'))
    const ofCollections = await this.#changes(clustered, known, (entry, { options }) =>
      collectionExpiry(options) ? [() => this.#collMod(entry, { expireAfterSeconds: 'off' })] : [],
    )
    await this.#run([...changes, ...ofCollections])
  }

  /**
   * Undoes restoreCapped, prepareIndexes, restoreExpiry and finishIndexes, so that events can be applied or collections
   * converged. TTL comes first, so that no document expires during the other steps.
   */
  async deferAll(all: CatalogEntry[]): Promise<void> {
    const entries = all.filter(({ destinationUUID }) => destinationUUID)
    // An index that some shards lack is dropped. The next reconciliation builds it again with its options deferred.
    const isConstraining = (one: IndexSpecification): boolean => {
      const { unique, prepareUnique, hidden, expireAfterSeconds } = deferredOptionsOf(one)
      const mayExpire = expireAfterSeconds !== undefined && numberOf(expireAfterSeconds) !== neverExpires
      return unique || prepareUnique || hidden || mayExpire
    }
    const known = await this.#dropIncomplete(entries, await this.read(entries), (_, found) =>
      found.some(isConstraining),
    )
    await this.deferExpiry(entries, known)
    const capped = entries.filter(({ wanted }) => isCapped(wanted.options))
    const widened = await this.#changes(capped, known, (entry, { options }) => {
      const max = fieldNamed(entry.wanted.options, 'max') ? { cappedMax: -1 } : {}
      const isLargest = numberOf(fieldNamed(options, 'size')) === Number(largestCappedBytes)
      if (isLargest && !hasMaximum(fieldNamed(options, 'max'))) return []
      return [() => this.#collMod(entry, { cappedSize: Long.fromBigInt(largestCappedBytes), ...max })]
    })
    const constraining = await this.#indexChanges(entries, known, everyIndex, 'deferring', (entry, wanted, have) => {
      const steps: (() => Promise<unknown>)[] = []
      if (have.hidden) steps.push(() => this.#modify(entry, wanted, { hidden: false }))
      if (have.prepareUnique) steps.push(() => this.#modify(entry, wanted, { prepareUnique: false }))
      if (have.unique) steps.push(() => this.#makeNonUnique(entry, wanted))
      return steps
    })
    await this.#run([...widened, ...constraining])
  }

  /**
   * Restores unique and hidden. Throws FatalError DuplicateKey with the `_id`s of documents that violate a unique
   * index. An index with deferred options that some shards lack is dropped, because it must be built again on all
   * shards.
   */
  async finishIndexes(entries: CatalogEntry[], existing?: ExistingDefinitions): Promise<void> {
    const isUniqueOrHidden = (one: IndexSpecification): boolean =>
      deferredOptionsOf(one).unique || deferredOptionsOf(one).hidden
    const hasDeferred = (one: IndexSpecification): boolean => isUniqueOrHidden(one) || isUnique(one) || expires(one)
    const known = await this.#dropIncomplete(entries, existing ?? (await this.read(entries)), hasDeferred)
    const changes = await this.#indexChanges(entries, known, isUniqueOrHidden, 'restoring', (entry, wanted, have) => {
      const want = deferredOptionsOf(wanted)
      const steps: (() => Promise<unknown>)[] = []
      if (want.unique && !have.unique) steps.push(() => this.#makeUnique(entry, wanted))
      if (want.unique && have.unique && have.prepareUnique && !want.prepareUnique) {
        steps.push(() => this.#modify(entry, wanted, { prepareUnique: false }))
      }
      if (want.hidden && !have.hidden) steps.push(() => this.#modify(entry, wanted, { hidden: true }))
      return steps
    })
    await this.#run(changes, conversionsAtOnce)
  }

  /**
   * Uses forceNonUnique, a collMod option that the manual does not document. Measured on 6.0.27: the index accepts
   * duplicates at once, even when a conflicting index exists, and it can become unique again. When the server refuses
   * the option, the index is dropped. The next reconciliation of the collection builds it again with its options
   * deferred.
   */
  async #makeNonUnique(entry: CatalogEntry, index: IndexSpecification): Promise<void> {
    try {
      await this.#modify(entry, index, { forceNonUnique: true })
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      await this.#dropIndex(entry, indexName(index))
    }
  }

  async #makeUnique(entry: CatalogEntry, index: IndexSpecification): Promise<void> {
    try {
      await this.#modify(entry, index, { unique: true })
    } catch (error) {
      if (codeOf(error) !== code.cannotConvertIndexToUnique) throw error
      throw new FatalError(
        'DuplicateKey',
        `restoring the option unique at commit: the index ${indexName(index)} of ${this.#cluster.names.shown(namespace(entry.database, entry.name))} has duplicates on the ` +
          `destination: _id ${violators(error)} (${errorText(error)}). Remove or change them there and send resume. tandem has removed no document.`,
        { cause: error },
      )
    }
  }

  /**
   * Drops the indexes that some shards lack or have with another specification, if `mustDrop` returns true for them.
   * Returns the existing definitions without them.
   * @param mustDrop called with the wanted index and with the specifications on the shards that have it
   */
  async #dropIncomplete(
    entries: CatalogEntry[],
    known: ExistingDefinitions,
    mustDrop: (wanted: IndexSpecification, found: readonly IndexSpecification[]) => boolean,
  ): Promise<ExistingDefinitions> {
    const remaining = new Map(known)
    const changes = await this.#changes(entries, known, (entry, definition) => {
      const wanted = new Map(entry.wanted.indexes.map((one) => [indexName(one), one]))
      const dropped = (definition.uneven ?? []).filter((one) => {
        const index = wanted.get(one.name)
        return index !== undefined && isIncomplete(one) && mustDrop(index, one.found)
      })
      if (dropped.length === 0) return []
      const uneven = definition.uneven?.filter((one) => !dropped.includes(one)) ?? []
      if (entry.destinationUUID) remaining.set(entry.destinationUUID, { ...definition, uneven })
      return dropped.map((one) => () => this.#dropIndex(entry, one.name))
    })
    await this.#run(changes)
    return remaining
  }

  /**
   * Returns the changes to the wanted indexes that are `relevant` and that the destination has. It does not have
   * indexes that the sync does not build.
   */
  #indexChanges(
    entries: CatalogEntry[],
    known: ExistingDefinitions | undefined,
    relevant: (wanted: IndexSpecification) => boolean,
    toward: 'restoring' | 'deferring',
    stepsOf: (
      entry: CatalogEntry,
      wanted: IndexSpecification,
      have: DeferredIndexOptions,
    ) => (() => Promise<unknown>)[],
  ): Promise<Change[]> {
    const concerned = entries.filter(({ wanted }) => wanted.indexes.some(relevant))
    return this.#changes(concerned, known, (entry, existing) => {
      const byName = foundSpecifications(existing)
      return entry.wanted.indexes.filter(relevant).flatMap((wanted) => {
        const found = byName.get(indexName(wanted))
        const steps = found ? stepsOf(entry, wanted, deferredOptionsOn(found, toward)) : []
        return steps.length > 0 ? [() => this.#inOrder(steps)] : []
      })
    })
  }

  /** Reads the existing definitions, unless `known` contains them, and returns the changes that the collections need. */
  async #changes(
    entries: CatalogEntry[],
    known: ExistingDefinitions | undefined,
    changesOf: (entry: CatalogEntry, existing: ExistingDefinition) => (() => Promise<unknown>)[],
  ): Promise<Change[]> {
    if (entries.length === 0) return []
    const existing = known ?? (await this.read(entries))
    return entries.flatMap((entry) => {
      assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} has no UUID on the destination`)
      const found = existing.get(entry.destinationUUID)
      const runs = found ? changesOf(entry, found) : []
      // mongos refuses a collMod while another collMod of the same collection is in progress.
      if (this.#cluster.sharded && runs.length > 1) return [{ entry, run: () => this.#inOrder(runs) }]
      return runs.map((run) => ({ entry, run }))
    })
  }

  async #run(changes: Change[], width = changesAtOnce): Promise<void> {
    await inParallel(width, changes, async ({ entry, run }) => {
      await retry(`changing options of ${namespace(entry.database, entry.name)}`, this.#context, run)
    })
  }

  async #inOrder(steps: (() => Promise<unknown>)[]): Promise<void> {
    for (const step of steps) {
      if (this.#context.signal.aborted) throw new StoppedError()
      await step()
    }
  }

  async #modify(entry: CatalogEntry, index: IndexSpecification, change: Document): Promise<void> {
    try {
      await this.#collMod(entry, { index: { name: indexName(index), ...change } })
    } catch (error) {
      if (codeOf(error) !== code.indexNotFound) throw error
      // The index was dropped after the definitions were read. If only some shards lack it, it is unknown whether the
      // others have changed it.
      await this.#refuseIncomplete(entry, indexName(index), error)
    }
  }

  /** Throws FatalError IndexBuildFailed if some shards have the index and others do not. */
  async #refuseIncomplete(entry: CatalogEntry, name: string, cause: unknown): Promise<void> {
    const { database, name: collection, destinationUUID: uuid } = entry
    if (!this.#cluster.sharded || !uuid) return
    const located = { database, name: collection, uuid }
    const uneven = (await readUnevenIndexes(this.#cluster, [located], 1)).get(uuid)?.find((one) => one.name === name)
    if (!uneven) return
    throw new FatalError(
      'IndexBuildFailed',
      `restoring the options of the index ${name} of ${this.#cluster.names.shown(namespace(database, collection))}: these shards of the destination do not have the index: ` +
        `${uneven.missingOn.join(', ')}. Send resume, and tandem builds it again. ${notLost.progress}`,
      { cause },
    )
  }

  async #dropIndex(entry: CatalogEntry, name: string): Promise<void> {
    assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} has no UUID on the destination`)
    const uuid = toUuid(entry.destinationUUID)
    try {
      await underPresentName(entry, (present) =>
        this.#cluster.write(entry.database, { dropIndexes: present, collectionUUID: uuid, index: name }),
      )
    } catch (error) {
      if (codeOf(error) !== code.indexNotFound) throw error
    }
  }

  async #collMod(entry: CatalogEntry, fields: Document): Promise<void> {
    assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} has no UUID on the destination`)
    const uuid = toUuid(entry.destinationUUID)
    // A conversion to unique scans the whole index. All other changes are quick.
    const limit = fields['index']?.unique === true ? { timeoutMS: 0 } : {}
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { collMod: name, collectionUUID: uuid, ...fields }, limit),
    )
  }
}

const everyIndex = (): boolean => true

function isUnique(wanted: IndexSpecification): boolean {
  return deferredOptionsOf(wanted).unique || deferredOptionsOf(wanted).prepareUnique
}

function expires(wanted: IndexSpecification): boolean {
  return deferredOptionsOf(wanted).expireAfterSeconds !== undefined
}

/** Returns the `_id`s of the first duplicates (at most ten) that the server reports, as canonical Extended JSON. */
function violators(error: unknown): string {
  const response = (error as { errorResponse?: Document }).errorResponse
  const groups = (response?.['violations'] ?? []) as { ids: unknown[] }[]
  const ids = groups.flatMap((group) => group.ids).slice(0, 10)
  return ids.map((id) => BSON.EJSON.stringify(id, { relaxed: false })).join(', ')
}
