import { Binary, type Document, type Timestamp } from 'mongodb'
import { batched } from '../domain/batched.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { StoppedError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { inSlices } from '../domain/in-slices.ts'
import { buildDocument, readFields } from '../domain/raw-bson.ts'
import type { ShardKey } from '../domain/shard-key.ts'
import { fromTimestamp, toTimestamp } from './cluster.ts'
import type { SegmentStore } from './segment-store.ts'
import { bytesOf, notOfLater, type StoredDocuments } from './stored-documents.ts'
import type { TombstoneStore } from './tombstone-store.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** The largest number of collections whose copies are ended in one batch. */
const endsMax = 500

interface EndedCopy {
  uuid: string
  /** Each partition with the epoch of its ownership. */
  partitions: ReadonlyMap<number, number>
  partitionCount: number
}

/** The stored catalog. The coordinator writes the definitions; the instance that ends a copy writes its progress. */
export class CollectionStore {
  readonly #stored: StoredDocuments
  readonly #others: { segments: SegmentStore; tombstones: TombstoneStore }
  readonly #coordinator: { readonly term: number }
  readonly #endCopy = batched(endsMax, (ends: EndedCopy[]) => this.#endCopies(ends))

  /**
   * @param others the stores whose documents are removed together with a collection
   * @param coordinator the coordinator's term: an earlier term cannot overwrite what a later term has written
   */
  constructor(
    stored: StoredDocuments,
    others: { segments: SegmentStore; tombstones: TombstoneStore },
    coordinator: { readonly term: number },
  ) {
    this.#stored = stored
    this.#others = others
    this.#coordinator = coordinator
  }

  async load(): Promise<CatalogEntry[]> {
    const found = await this.#stored.find('collections', {})
    return await inSlices(found, (document) => ({
      uuid: fromUuid(document['_id'] as Binary),
      database: document['database'] as string,
      name: document['name'] as string,
      sourceName: document['name'] as string,
      destinationUUID: document['destinationUUID'] ? fromUuid(document['destinationUUID'] as Binary) : null,
      state: document['state'] as CatalogEntry['state'],
      // Schema version 1 does not have this field, because it supports only collections that tandem created empty.
      converging: document['converging'] === true,
      convergedFrom: convergedFromOf(document),
      wanted: {
        options: readFields(bytesOf(document['options'])),
        indexes: (document['indexes'] as Binary[]).map((index) => readFields(bytesOf(index))),
      },
      // Earlier versions store neither this field nor the estimated number of documents.
      refusedIndexes: (document['refusedIndexes'] as string[] | undefined) ?? [],
      // Earlier releases build indexes before the copy, and do not store this field.
      awaitsIndexes: document['awaitsIndexes'] === true,
      shardKey: shardKeyOf(document['shardKey']),
      estimatedBytes: document['estimatedBytes'] as number,
      estimatedDocuments: (document['estimatedDocuments'] as number | undefined) ?? 0,
      copiedBytes: 0,
      totalCopied: document['totalCopied'] as number | null,
      endedPartitions: new Set(document['endedPartitions'] as number[]),
      planned: document['planned'] as boolean,
      hasTombstones: false,
    }))
  }

  /**
   * Stores the coordinator's view of collections. The instance that ends the copy of a collection stores the progress
   * of that copy. This method does not change `planned` of a stored collection; `savePlanned` and `converge` do. They
   * may run at the same time, and a retry of an older write would otherwise set `planned` to false again. The
   * collection would then be split into segments again while other instances copy its segments.
   */
  async save(entries: CatalogEntry[]): Promise<void> {
    const term = this.#coordinator.term
    await this.#stored.updateFenced(
      'collections',
      entries.map((entry) => ({
        q: { _id: toUuid(entry.uuid), ...ofTermUntil(term) },
        u: {
          ...formerTerm,
          $set: {
            term,
            database: entry.database,
            name: entry.name,
            destinationUUID: entry.destinationUUID ? toUuid(entry.destinationUUID) : null,
            options: new Binary(buildDocument(entry.wanted.options)),
            indexes: entry.wanted.indexes.map((index) => new Binary(buildDocument(index))),
            shardKey: storedKey(entry.shardKey),
            refusedIndexes: entry.refusedIndexes,
            awaitsIndexes: entry.awaitsIndexes,
          },
          $setOnInsert: {
            state: entry.state,
            converging: entry.converging,
            convergedFrom: entry.convergedFrom === null ? null : toTimestamp(entry.convergedFrom),
            endedPartitions: [],
            totalCopied: entry.state === 'copied' ? (entry.totalCopied ?? 0) : null,
            planned: entry.planned,
            estimatedBytes: entry.estimatedBytes,
            estimatedDocuments: entry.estimatedDocuments,
          },
        },
        upsert: true,
      })),
    )
  }

  /**
   * Stores that these collections are to be converged again, or copied again, from the beginning. From then on, no
   * former owner of a partition can end their copy.
   * @param epochs all partitions with the epochs of their current ownership
   */
  async converge(entries: CatalogEntry[], epochs: ReadonlyMap<number, number>): Promise<void> {
    const term = this.#coordinator.term
    const $max = Object.fromEntries([...epochs].map(([partition, epoch]) => [epochField(partition), epoch]))
    await this.#stored.update(
      'collections',
      entries.map(({ uuid, converging, destinationUUID, shardKey }) => ({
        q: { _id: toUuid(uuid), ...ofTermUntil(term) },
        u: {
          ...formerTerm,
          $set: {
            term,
            state: 'copying',
            converging,
            destinationUUID: destinationUUID ? toUuid(destinationUUID) : null,
            shardKey: storedKey(shardKey),
            planned: false,
            endedPartitions: [],
            totalCopied: null,
          },
          $max,
        },
      })),
    )
  }

  /** Stores the start time of these collections' convergence. */
  async saveConvergedFrom(uuids: readonly string[], startTime: ClusterTime): Promise<void> {
    const { term } = this.#coordinator
    await this.#stored.update(
      'collections',
      uuids.map((uuid) => ({
        q: { _id: toUuid(uuid), ...ofTermUntil(term) },
        u: { ...formerTerm, $set: { term, convergedFrom: toTimestamp(startTime) } },
      })),
    )
  }

  /**
   * Stores that these collections are split into segments. Does not store their definitions, which may have changed
   * since. Returns the UUIDs of those that still exist and that no later term has written.
   */
  async savePlanned(entries: CatalogEntry[]): Promise<string[]> {
    const term = this.#coordinator.term
    const matched = await this.#stored.update(
      'collections',
      entries.map(({ uuid, estimatedBytes, estimatedDocuments }) => ({
        q: { _id: toUuid(uuid), ...ofTermUntil(term) },
        u: { ...formerTerm, $set: { term, planned: true, estimatedBytes, estimatedDocuments } },
      })),
    )
    if (matched === entries.length) return entries.map(({ uuid }) => uuid)
    const projection = { schemaVersion: 1 }
    const planned = await this.#stored.find('collections', { term, planned: true }, { projection })
    const requested = new Set(entries.map(({ uuid }) => uuid))
    return planned.map((document) => fromUuid(document['_id'] as Binary)).filter((uuid) => requested.has(uuid))
  }

  /**
   * Returns the UUIDs of collections whose copy has not ended. If all partitions of a collection have ended its copy,
   * this method first stores the collection as copied, because the instance that ended the copy for the last partition
   * may have crashed before it did so.
   * @param until once it is aborted, a removal of tombstones stops, and this method rejects with StoppedError
   */
  async copying(partitionCount: number, until?: AbortSignal): Promise<string[]> {
    const projection = { schemaVersion: 1, endedPartitions: 1, convergedFrom: 1 }
    const found = await this.#stored.find('collections', { state: 'copying' }, { projection })
    const copying: string[] = []
    for (const document of found) {
      const uuid = fromUuid(document['_id'] as Binary)
      const ended = (document['endedPartitions'] as number[]).length === partitionCount
      if (!ended || (await this.endCopy(uuid, new Map(), partitionCount)) === null) copying.push(uuid)
      else await this.#others.tombstones.remove([{ uuid, convergedFrom: convergedFromOf(document) }], until)
    }
    return copying
  }

  /**
   * Stores the epochs under which these partitions are owned. From then on, no former owner can end a copy for these
   * partitions. If a former owner could, the tombstones that its successor has recorded would be discarded. Must be
   * called before the stored catalog is read and changes of these partitions are applied under these epochs.
   */
  async claimCopies(epochs: ReadonlyMap<number, number>): Promise<void> {
    const $max = Object.fromEntries([...epochs].map(([partition, epoch]) => [epochField(partition), epoch]))
    await this.#stored.update('collections', [{ q: { state: 'copying' }, u: { $set: {}, $max }, multi: true }])
  }

  /**
   * Records that these partitions have reconciled the tombstones that they recorded during the copy of this collection.
   * Returns the copied bytes once all partitions have done so, and null before. Throws StoppedError when one of the
   * partitions has moved to another owner. The caller removes the tombstones afterwards: there may be millions, and no
   * event may be applied before this method returns.
   * @param partitions each with the epoch of its ownership
   */
  async endCopy(uuid: string, partitions: ReadonlyMap<number, number>, partitionCount: number): Promise<number | null> {
    const ended = await this.#endCopy({ uuid, partitions, partitionCount })
    if (ended === 'moved') throw new StoppedError()
    return ended
  }

  /**
   * Ends several copies with as many round trips as one copy takes. Each result is what `endCopy` returns, or 'moved'
   * when one of the partitions has moved to another owner.
   */
  async #endCopies(ends: EndedCopy[]): Promise<(number | null | 'moved')[]> {
    await this.#stored.update(
      'collections',
      ends.map(({ uuid, partitions }) => ({
        q: {
          _id: toUuid(uuid),
          ...Object.fromEntries([...partitions].map(([one, epoch]) => [epochField(one), notOfLater(epoch)])),
        },
        u: { $set: {}, $addToSet: { endedPartitions: { $each: [...partitions.keys()] } } },
      })),
    )
    const projection = { schemaVersion: 1, state: 1, totalCopied: 1, endedPartitions: 1 }
    const ofEnds = { _id: { $in: ends.map(({ uuid }) => toUuid(uuid)) } }
    const found = new Map<string, Document>()
    // The owner of all partitions completes the copies, and reads their bytes in the same round trip.
    const own = ends.filter(({ partitions, partitionCount }) => partitions.size >= partitionCount)
    const [stored, bytesOfOwn] = await both(
      this.#stored.find('collections', ofEnds, { projection }),
      this.#bytesOf(own.map(({ uuid }) => uuid)),
    )
    for (const document of stored) found.set(fromUuid(document['_id'] as Binary), document)
    const isComplete = ({ uuid, partitionCount }: EndedCopy): boolean => {
      const one = found.get(uuid)
      return one?.['state'] === 'copying' && (one['endedPartitions'] as number[]).length >= partitionCount
    }
    const counts = new Map(ends.filter(isComplete).map(({ uuid, partitionCount }) => [uuid, partitionCount]))
    const completed = [...counts.keys()]
    const bytes = new Map([...bytesOfOwn, ...(await this.#bytesOf(completed.filter((uuid) => !bytesOfOwn.has(uuid))))])
    const totals = new Map(completed.map((uuid) => [uuid, bytes.get(uuid) ?? 0]))
    if (completed.length > 0) {
      // Any instance may store this, so `state` and `endedPartitions` guard this write, not the coordinator's term. A
      // convergence empties `endedPartitions` and raises the partitions' epochs. A delayed write of the former copy
      // therefore matches nothing until the owners of all partitions have ended the new copy.
      await this.#stored.update(
        'collections',
        [...totals].map(([uuid, totalCopied]) => ({
          q: { _id: toUuid(uuid), state: 'copying', endedPartitions: { $size: counts.get(uuid) } },
          u: { $set: { state: 'copied', totalCopied } },
        })),
      )
    }
    return ends.map(({ uuid, partitions }) => {
      const one = found.get(uuid)
      if (!one || one['state'] === 'copied') return (one?.['totalCopied'] as number | undefined) ?? 0
      const ended = new Set(one['endedPartitions'] as number[])
      if ([...partitions.keys()].some((partition) => !ended.has(partition))) return 'moved'
      return totals.get(uuid) ?? null
    })
  }

  /** Returns the copied bytes of each of these collections; 0 for one that has no segments. */
  async #bytesOf(uuids: string[]): Promise<Map<string, number>> {
    const bytes = uuids.length > 0 ? await this.#others.segments.bytesOf(uuids) : new Map<string, number>()
    return new Map(uuids.map((uuid) => [uuid, bytes.get(uuid) ?? 0]))
  }

  /**
   * Removes a collection that no longer exists on the source, with its segments and tombstones. Removes nothing if a
   * later term has written it.
   */
  async remove(uuid: string): Promise<void> {
    const owned = { _id: toUuid(uuid), ...ofTermUntil(this.#coordinator.term) }
    const projection = { schemaVersion: 1, term: 1, tenure: 1, convergedFrom: 1 }
    const [stored] = await this.#stored.find('collections', { _id: owned._id }, { projection })
    if (stored && ((stored['term'] ?? stored['tenure']) as number) > this.#coordinator.term) return
    await this.#others.segments.remove([uuid])
    await this.#others.tombstones.remove([{ uuid, convergedFrom: convergedFromOf(stored) }])
    await this.#stored.delete('collections', [{ q: owned, limit: 1 }])
  }
}

/**
 * Matches the entry of a collection if no coordinator term later than `term` has written it. Up to schema version 2,
 * the term is in the field `tenure`. A write of this release removes `tenure`. An earlier release matches only entries
 * that have `tenure`, so after the first write of this release, a delayed write of an earlier release matches nothing
 * in any term.
 */
function ofTermUntil(term: number): Document {
  return { term: notOfLater(term), tenure: notOfLater(term) }
}

/** Part of each update that stores `term`. */
const formerTerm = { $unset: { tenure: '' } }

/** Null if an earlier release stored the document without this field, or if the collection was never converged. */
function convergedFromOf(stored: Document | undefined): ClusterTime | null {
  return stored?.['convergedFrom'] ? fromTimestamp(stored['convergedFrom'] as Timestamp) : null
}

/** The field for the epoch under which a partition was last claimed while this collection was being copied. */
function epochField(partition: number): string {
  return `epochs.${partition}`
}

function storedKey(key: ShardKey | null): Document[] | null {
  return key?.map(({ path, hashed }) => ({ path, hashed })) ?? null
}

/** Earlier versions, which could not sync sharded clusters, store no shard key. */
function shardKeyOf(stored: unknown): ShardKey | null {
  return (stored as ShardKey | null | undefined) ?? null
}
