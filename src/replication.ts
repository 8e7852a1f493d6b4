import { EventApplication } from './apply/event-application.ts'
import { DefinitionReconciler } from './apply/reconcile-definitions.ts'
import { DocumentWriter } from './apply/write-identities.ts'
import type { CommitParts } from './commit/finish-commit.ts'
import { repairDifferences } from './commit/repair.ts'
import { keepReversePosition } from './commit/reverse-position.ts'
import { setWriteBlocking } from './commit/write-blocking.ts'
import { CollectionCopy } from './copy/collection-copy.ts'
import { SegmentLedger } from './copy/segment-ledger.ts'
import { Catalogue } from './domain/catalogue.ts'
import { FatalError } from './domain/errors.ts'
import type { StartConfiguration } from './domain/start-request.ts'
import type { Cluster } from './mongo/cluster.ts'
import { DestinationDefinitions } from './mongo/destination-definitions.ts'
import { DestinationTraits } from './mongo/destination-traits.ts'
import { listCollections, listDatabases } from './mongo/listing.ts'
import { Metadata, type SyncRecord } from './mongo/metadata.ts'
import { type RetryContext, retry } from './mongo/retry.ts'
import type { VerificationStore } from './mongo/verification-store.ts'
import { adaptDestination } from './reverse/adapt.ts'

/** mongosync's 1 to 4: how hard to load the clusters. */
export type LoadLevel = 1 | 2 | 3 | 4
const segmentsAtOnce: Record<LoadLevel, number> = { 1: 1, 2: 2, 3: 4, 4: 8 }

/** Replica sets have one partition. */
const partition = 0

export interface ReplicationParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  record: SyncRecord
  context: RetryContext
  epoch: number
  loadLevel: LoadLevel
  atStep: (step: string) => void
  dropEventsOf: string | null
}

/** Everything that works on one sync between two pauses, built from what is stored. */
export class Replication {
  readonly catalogue = new Catalogue()
  readonly commit: CommitParts
  readonly #parts: ReplicationParts
  readonly #definitions: DefinitionReconciler
  readonly #writer: DocumentWriter
  #highestOrder = Date.now() * 1_000
  events: EventApplication | null = null
  copy: CollectionCopy | null = null

  constructor(parts: ReplicationParts) {
    this.#parts = parts
    const { source, destination, metadata, record, context } = parts
    const destinationDefinitions = new DestinationDefinitions(destination, record.configuration.buildIndexes)
    this.#definitions = new DefinitionReconciler({
      source,
      catalogue: this.catalogue,
      metadata,
      destination: destinationDefinitions,
      context,
      refuseExpiry: record.configuration.verification.enabled && record.configuration.buildIndexes === 'never',
    })
    this.#writer = new DocumentWriter(destination, (entry) => this.#definitions.dropVanishedIndexes(entry))
    this.commit = {
      source,
      destination,
      catalogue: this.catalogue,
      definitions: this.#definitions,
      destinationDefinitions,
      traits: new DestinationTraits(destination),
      writer: this.#writer,
      context,
      keepReversePosition: async () => {
        if (record.configuration.reversible) await keepReversePosition(destination, metadata, parts.epoch, context)
      },
      atStep: parts.atStep,
    }
  }

  /** What is stored, and where the destination has each collection now. */
  async load(): Promise<this> {
    const { metadata, destination, context } = this.#parts
    for (const entry of await metadata.loadCollections()) this.catalogue.add(entry)
    // Ascending also when the clock was set back since the last run.
    const highestOrder = await metadata.highestOrder()
    this.#highestOrder = Math.max(this.#highestOrder, highestOrder)
    for (const entry of this.catalogue.entries()) {
      if (entry.state !== 'copying') continue
      entry.hasTombstones = highestOrder > 0 && (await metadata.readTombstones(entry.uuid, -1, 1)).length > 0
      if (!entry.planned) continue
      const segments = await metadata.loadSegments(entry.uuid)
      entry.copiedBytes = segments.reduce((sum, segment) => sum + segment.bytes, 0)
    }
    for (const database of this.catalogue.databases()) {
      const listed = await retry(`listing ${database}`, context, () => listCollections(destination, database))
      const names = new Map(listed.map((one) => [one.uuid, one.name]))
      for (const entry of this.catalogue.inDatabase(database)) {
        // A rename acknowledged by the server and not yet stored when the process died.
        if (entry.destinationUUID) entry.name = names.get(entry.destinationUUID) ?? entry.name
      }
    }
    return this
  }

  /** Blocks the destination, creates every collection in its held-back form and stores the first position. */
  async initialise(): Promise<void> {
    const { source, destination, metadata, record, context, epoch } = this.#parts
    if (blocksDestination(record.configuration)) {
      await retry('blocking writes on the destination', context, () => setWriteBlocking(destination, true))
    }
    await metadata.createIndexes()
    const databases = await retry('listing databases', context, () => listDatabases(source))
    for (const database of new Set([...databases, ...this.catalogue.databases()])) {
      await this.#definitions.reconcile(database, 'all', 'copying')
    }
    await metadata.savePosition(partition, epoch, { kind: 'time', time: record.startTime })
  }

  /** Reconciles from the source what a verdict found different: documents by identity, definitions by database. */
  async repair(store: VerificationStore): Promise<number> {
    const { source, metadata, context } = this.#parts
    const documents = { source, metadata, writer: this.#writer, nextOrder: this.#nextOrder, context }
    return await repairDifferences({ ...this.commit, store, documents })
  }

  /** After a reversal: makes the former source fit to be the destination. */
  async adapt(): Promise<void> {
    const { source, metadata, context } = this.#parts
    await adaptDestination({
      commit: this.commit,
      metadata,
      superseded: new Metadata(source, context),
      documents: { source, metadata, writer: this.#writer, nextOrder: this.#nextOrder },
    })
  }

  readonly #nextOrder = (count: number): number => {
    const first = this.#highestOrder + 1
    this.#highestOrder += count
    return first
  }

  /** Prepares both workers; neither runs yet. */
  async prepare(): Promise<void> {
    const { source, destination, metadata, record, context, epoch } = this.#parts
    const start = await metadata.loadPosition(partition)
    if (!start) throw new FatalError('InternalError', 'a sync that was initialised has no stored position')
    const nextOrder = this.#nextOrder
    const events = new EventApplication({
      source,
      metadata,
      catalogue: this.catalogue,
      definitions: this.#definitions,
      documents: { source, metadata, writer: this.#writer, nextOrder },
      context,
      partition,
      epoch,
      start,
      dropEventsOf: this.#parts.dropEventsOf,
    })
    this.events = events
    this.copy = new CollectionCopy({
      source,
      destination,
      metadata,
      catalogue: this.catalogue,
      segmentsAtOnce: segmentsAtOnce[this.#parts.loadLevel],
      ledger: new SegmentLedger(metadata),
      context,
      startTime: record.startTime,
      nextOrder,
      copyEnded: (entry) => events.copyEnded(entry),
    })
  }
}

export function blocksDestination(configuration: StartConfiguration): boolean {
  return configuration.enableUserWriteBlocking !== 'none'
}
