import { BSON, type Document, Long } from 'mongodb'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import {
  type IndexSpecification,
  indexName,
  isCapped,
  neverExpires,
  sameNumber,
  traitsOf,
  widestCappedBytes,
} from '../domain/definition.ts'
import { assert, FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { fieldNamed, numberOf } from '../domain/raw-bson.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf, isTransient } from './errors.ts'
import { listCollections, listIndexes } from './listing.ts'
import { underPresentName } from './present-name.ts'
import { RawValue } from './raw-values.ts'
import { toUuid } from './uuid.ts'

/**
 * Puts back at commit what was held back: capped sizes, TTL, hidden, prepareUnique, unique. Each step compares what
 * stands with what is wanted first, so it may be repeated after a crash; of a collection that is gone nothing is to be put back.
 */
export class DestinationTraits {
  readonly #cluster: Cluster
  constructor(destination: Cluster) {
    this.#cluster = destination
  }

  /** Size and document maximum of a capped collection (collMod cappedSize, cappedMax: 6.0 and later). */
  async restoreCapped(entry: CatalogueEntry): Promise<void> {
    if (!isCapped(entry.wanted.options)) return
    const listed = await listCollections(this.#cluster, entry.database)
    const standing = listed.find((one) => one.uuid === entry.destinationUUID)
    if (!standing) return
    const size = fieldNamed(entry.wanted.options, 'size')
    const max = fieldNamed(entry.wanted.options, 'max')
    const change: Document = {}
    if (size && !sameNumber(size, fieldNamed(standing.options, 'size'))) change['cappedSize'] = new RawValue(size)
    if (max && numberOf(max) !== 0 && !sameNumber(max, fieldNamed(standing.options, 'max'))) {
      change['cappedMax'] = new RawValue(max)
    }
    if (Object.keys(change).length > 0) await this.#collMod(entry, change)
  }

  /** prepareUnique, before writes are allowed: from then on duplicates are rejected. */
  async prepareIndexes(entry: CatalogueEntry): Promise<void> {
    for (const { wanted, standing } of await this.#pairs(entry)) {
      const want = traitsOf(wanted)
      const have = traitsOf(standing)
      if ((want.unique || want.prepareUnique) && !have.unique && !have.prepareUnique) {
        await this.#modify(entry, wanted, { prepareUnique: true })
      }
    }
  }

  /** TTL, when nothing is compared any more: both clusters expire documents at times of their own. */
  async restoreExpiry(entry: CatalogueEntry): Promise<void> {
    for (const { wanted, standing } of await this.#pairs(entry)) {
      const { expireAfterSeconds } = traitsOf(wanted)
      if (!expireAfterSeconds || sameNumber(expireAfterSeconds, traitsOf(standing).expireAfterSeconds)) continue
      await this.#modify(entry, wanted, { expireAfterSeconds: new RawValue(expireAfterSeconds) })
    }
  }

  /**
   * Undoes restoreCapped, prepareIndexes, restoreExpiry and finishIndexes: for a commit that begins anew, and for a cluster that a
   * reversal makes the destination. TTL first, so that nothing expires while the rest is done.
   */
  async holdBack(entry: CatalogueEntry): Promise<void> {
    if (!entry.destinationUUID) return
    if (isCapped(entry.wanted.options)) {
      const unlimited = fieldNamed(entry.wanted.options, 'max') ? { cappedMax: -1 } : {}
      await this.#collMod(entry, { cappedSize: Long.fromBigInt(widestCappedBytes), ...unlimited })
    }
    const pairs = await this.#pairs(entry)
    for (const { wanted, standing } of pairs) {
      const { expireAfterSeconds } = traitsOf(standing)
      if (expireAfterSeconds && numberOf(expireAfterSeconds) !== neverExpires) {
        await this.#modify(entry, wanted, { expireAfterSeconds: neverExpires })
      }
    }
    for (const { wanted, standing } of pairs) {
      const have = traitsOf(standing)
      if (have.hidden) await this.#modify(entry, wanted, { hidden: false })
      if (have.prepareUnique) await this.#modify(entry, wanted, { prepareUnique: false })
      if (have.unique) await this.#makeNonUnique(entry, wanted)
    }
  }

  /** Unique and hidden. Throws FatalError DuplicateKey naming the `_id`s when documents violate a unique index. */
  async finishIndexes(entry: CatalogueEntry): Promise<void> {
    for (const { wanted, standing } of await this.#pairs(entry)) {
      const want = traitsOf(wanted)
      const have = traitsOf(standing)
      if (want.unique && !have.unique) await this.#makeUnique(entry, wanted)
      if (want.unique && want.prepareUnique === false && have.prepareUnique && have.unique) {
        await this.#modify(entry, wanted, { prepareUnique: false })
      }
      if (want.hidden && !have.hidden) await this.#modify(entry, wanted, { hidden: true })
    }
  }

  /**
   * By an option of collMod that the manual does not have (measured on 6.0.27: duplicates are accepted at once, also
   * beside a twin, and the index can become unique again). A server without it has the index dropped; it is built anew,
   * held back, at the next look at the collection's definition.
   */
  async #makeNonUnique(entry: CatalogueEntry, index: IndexSpecification): Promise<void> {
    try {
      await this.#modify(entry, index, { forceNonUnique: true })
    } catch (error) {
      if (codeOf(error) === undefined || isTransient(error)) throw error
      await this.#dropIndex(entry, indexName(index))
    }
  }

  async #makeUnique(entry: CatalogueEntry, index: IndexSpecification): Promise<void> {
    try {
      await this.#modify(entry, index, { unique: true })
    } catch (error) {
      if (codeOf(error) !== code.cannotConvertIndexToUnique) throw error
      throw new FatalError(
        'DuplicateKey',
        `unique index ${indexName(index)} of ${namespace(entry.database, entry.name)} has duplicates on the destination: ` +
          `_id ${violators(error)}. Remove or change them there and send resume.`,
        { cause: error },
      )
    }
  }

  /** Indexes wanted that stand on the destination; with buildIndexes never most do not. */
  async #pairs(entry: CatalogueEntry): Promise<{ wanted: IndexSpecification; standing: IndexSpecification }[]> {
    assert(entry.destinationUUID, 'a collection without counterpart at commit')
    const standing = (await listIndexes(this.#cluster, entry.database, entry.destinationUUID)) ?? []
    const byName = new Map(standing.map((one) => [indexName(one), one]))
    return entry.wanted.indexes.flatMap((wanted) => {
      const one = byName.get(indexName(wanted))
      return one ? [{ wanted, standing: one }] : []
    })
  }

  async #modify(entry: CatalogueEntry, index: IndexSpecification, change: Document): Promise<void> {
    await this.#collMod(entry, { index: { name: indexName(index), ...change } })
  }

  async #dropIndex(entry: CatalogueEntry, name: string): Promise<void> {
    assert(entry.destinationUUID, 'a collection without counterpart at commit')
    const uuid = toUuid(entry.destinationUUID)
    await underPresentName(entry, (present) =>
      this.#cluster.write(
        entry.database,
        { dropIndexes: present, collectionUUID: uuid, index: name },
        { timeoutMS: 0 },
      ),
    )
  }

  async #collMod(entry: CatalogueEntry, fields: Document): Promise<void> {
    assert(entry.destinationUUID, 'a collection without counterpart at commit')
    const uuid = toUuid(entry.destinationUUID)
    await underPresentName(entry, (name) =>
      this.#cluster.write(entry.database, { collMod: name, collectionUUID: uuid, ...fields }, { timeoutMS: 0 }),
    )
  }
}

/** `_id`s of the first duplicates that the server names (at most ten), as canonical Extended JSON. */
function violators(error: unknown): string {
  const response = (error as { errorResponse?: Document }).errorResponse
  const groups = (response?.['violations'] ?? []) as { ids: unknown[] }[]
  const ids = groups.flatMap((group) => group.ids).slice(0, 10)
  return ids.map((id) => BSON.EJSON.stringify(id, { relaxed: false })).join(', ')
}
