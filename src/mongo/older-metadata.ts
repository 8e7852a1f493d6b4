import type { Document } from 'mongodb'
import { metadataDatabase, olderMetadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf } from './errors.ts'
import type { RetryContext } from './retry.ts'
import { StoredDocuments } from './stored-documents.ts'

/**
 * The version of a reservation. Earlier releases read records of the versions 1 to 3, and refuse any other version
 * (MetadataVersion). This release tells reservations from records by the field `supersededBy`.
 */
const reservationVersion = 4
const collection = 'sync'
const supersededBy = 'supersededBy'
/** Matches a reservation, and no record of a sync. */
const isReservation = { [supersededBy]: { $exists: true } }
/** Matches the record of a sync, and no reservation. */
export const isRecord = { [supersededBy]: { $exists: false } }
/**
 * How long a reservation stays, ms. An instance of an earlier release that has found no sync stores its own record when
 * its checks have passed. That takes seconds, or minutes with a large catalog.
 */
export const reservationMS = 10 * 60_000

/**
 * The metadata database of earlier releases on one cluster. Through it, instances of this release and of earlier ones
 * agree on the name of a sync's metadata database. During a rolling upgrade, instances of both may start at the same time.
 *
 * Before a sync exists, an instance of any release only reads: leases, heartbeats and commands belong to a sync, so its
 * record is its first document. All instances agree on one sync because they store that record by one conditional write,
 * on `_id: 'sync'` of the collection `sync`. Two databases could have two such documents, and so two syncs into one
 * destination. An earlier release knows only one of the databases. Therefore
 *
 * 1. an instance looks for a sync in both databases (`findStoredSync`), and takes part in one that it finds, in the
 *    database that holds it;
 * 2. if it finds none, it reserves the older name before it stores the record under the new name. The reservation is a
 *    document in the place of the older record. One conditional write creates it only where no record exists. An
 *    instance of an earlier release creates its record in the same way, so one of the two documents is stored first. If
 *    that is the reservation, the other instance gets a duplicate key, reads the reservation, and refuses its start
 *    because of the version. If it is the record, the reservation fails, and this instance joins that sync;
 * 3. it reserves the name again after it has stored the record. If `tandem clean` has removed the reservation in between
 *    and an instance of an earlier release has begun a sync, the reservation fails, and the start is refused;
 * 4. any sync or `tandem clean` removes the reservation when it is older than `reservationMS`, because MongoDB's
 *    migration-verifier compares the database that contains it. By then, the start of an instance of an earlier release
 *    that found no sync before the reservation was written has failed. An instance that is started later finds the
 *    collections of the sync, and refuses its start (`DestinationNotEmpty`), unless it accepts existing data. Instances
 *    of this release read the older database again while they take part in a sync, and before a commit is decided
 *    (`OtherSyncs`). They fail if it holds a sync.
 */
export class OlderMetadata {
  readonly #cluster: Cluster
  readonly #stored: StoredDocuments
  #reservedAt: Date | null = null

  constructor(cluster: Cluster, context: RetryContext) {
    this.#cluster = cluster
    const version = { writes: reservationVersion, reads: [reservationVersion] }
    this.#stored = new StoredDocuments(cluster, context, version, olderMetadataDatabase)
  }

  /** When the last `reserve` has written the reservation, by the server's clock; null if it has written none. */
  get reservedAt(): Date | null {
    return this.#reservedAt
  }

  /** Returns false if a sync of an earlier release is stored here. Renews an existing reservation. */
  async reserve(): Promise<boolean> {
    const change = { $set: { [supersededBy]: metadataDatabase }, $currentDate: { reservedAt: true } }
    const write = () => this.#stored.findAndUpdate(collection, { _id: 'sync', ...isReservation }, change, true)
    // A record does not match, so the upsert collides with its _id, and the result is null. The result is also null if
    // another instance of this release has inserted its reservation since the server searched for one. The server repeats
    // such an upsert only if the query is nothing but an equality on the key of the unique index. The second write renews
    // the reservation of the other instance.
    const found = (await write()) ?? (await write())
    this.#reservedAt = (found?.['reservedAt'] as Date | undefined) ?? null
    return found !== null
  }

  /**
   * Removes the reservation that was written at this time (`reservedAt`), unless another instance has renewed it. Only for a
   * cluster that stores no sync: another sync that began less than `reservationMS` ago needs the reservation too.
   */
  async removeWritten(reservedAt: Date): Promise<void> {
    await this.#remove({ reservedAt })
  }

  /**
   * Returns true if a reservation is stored here and has expired.
   * @param afterMS age from which a reservation has expired, by the server's clock
   */
  async hasExpired(afterMS: number): Promise<boolean> {
    return (await this.#stored.findOne(collection, { _id: 'sync', ...isReservation, ...isExpired(afterMS) })) !== null
  }

  /**
   * Removes an expired reservation together with its collection, because migration-verifier compares empty collections
   * too. Does nothing if there is none. The UUID protects a record that an instance of an earlier release creates in the
   * meantime: it can create one only in a new collection, after another instance has dropped this one.
   * @param afterMS age from which a reservation is removed, by the server's clock
   */
  async removeExpired(afterMS = reservationMS): Promise<void> {
    await this.#remove(isExpired(afterMS))
  }

  async #remove(condition: Document): Promise<void> {
    const command = { listCollections: 1, filter: { name: collection, type: 'collection' } }
    const [listed] = (await this.#cluster.read(olderMetadataDatabase, command))['cursor'].firstBatch as Document[]
    if (!listed) return
    if (!(await this.#stored.findOne(collection, { _id: 'sync', ...isReservation, ...condition }))) return
    const drop = { drop: collection, collectionUUID: listed['info'].uuid as unknown }
    try {
      await this.#cluster.write(olderMetadataDatabase, drop, { unfenced: true })
    } catch (error) {
      const isGone = codeOf(error) === code.namespaceNotFound || codeOf(error) === code.collectionUUIDMismatch
      if (!isGone) throw error
    }
  }
}

function isExpired(afterMS: number): Document {
  return { $expr: { $lte: ['$reservedAt', { $subtract: ['$$NOW', afterMS] }] } }
}
