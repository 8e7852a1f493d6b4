import type { Document } from 'mongodb'
import { CopyEnds } from '../../src/apply/copy-ends.ts'
import { SharedCatalog } from '../../src/apply/shared-catalog.ts'
import { CollectionStore } from '../../src/mongo/collection-store.ts'
import { hostProcess } from '../../src/mongo/host-process.ts'
import { SegmentStore } from '../../src/mongo/segment-store.ts'
import { TombstoneStore } from '../../src/mongo/tombstone-store.ts'
import { toUuid } from '../../src/mongo/uuid.ts'
import { collectionUuid } from './content.ts'
import { type Mutation, swap } from './mutation.ts'
import type { Network } from './network.ts'

/**
 * Writes to a sharded cluster carry no transaction numbers. There, only the term rejects a write of a former coordinator to segments. Such
 * a write is delivered when a later coordinator has planned one of these segments again. The ids of segments derive from the collection
 * and the ordinal, so they are the same in every plan.
 */
function deliverIntoNextPlan(destination: Network, verb: 'update' | 'delete'): void {
  const { server } = destination
  const statementsOf = (command: Document): Document[] =>
    command[verb] === 'segments' ? (command[`${verb}s`] as Document[]) : []
  // Updates of progress have no term, and the update that opens a plan selects by the collection.
  const isFenced = ({ q }: Document): boolean => q._id !== undefined && q.term !== undefined
  const isReplaced = ({ q }: Document): boolean => {
    const segment = server.collection('segments').get(q._id)
    const isOfLaterTerm = segment?.['term'] > q.term.$not.$gt
    return isOfLaterTerm && server.collection('collections').get(segment?.['collection'])?.['planned'] === true
  }
  destination.isOftenLost = (command) => statementsOf(command).some(isFenced)
  destination.lossChance = 1
  destination.lateForm = (_, command) => {
    const fenced = statementsOf(command).filter(isFenced)
    if (fenced.length === 0) return 'numbered'
    return fenced.some(isReplaced) ? 'unnumbered' : 'not yet'
  }
  server.alter = (collection, statement) => {
    const isOfVerb = 'u' in statement === (verb === 'update')
    if (collection !== 'segments' || !isOfVerb) return statement
    const { term, ...q } = statement['q'] as Document
    return { ...statement, q }
  }
}

/** Stores the segments of a coordinator that died before it stored that the collection is planned. The next coordinator removes them. */
function storeIncompletePlan({ server }: Network): void {
  const uuid = collectionUuid('source', 0)
  const collection = toUuid(uuid)
  const progress = { last: null, done: false, documents: 0, bytes: 0, attempts: 0 }
  const unclaimed = { claimable: false, owner: null, ownerID: null, previousID: null, claim: 0 }
  const bounds = { collection, ordinal: 0, priority: 0, from: null, to: null }
  const _id = `${Buffer.from(uuid, 'latin1').toString('hex')}:0`
  const segment = { _id, term: 0, ...progress, ...bounds, ...unclaimed, schemaVersion: 2 }
  server.collection('segments').update({ q: { _id }, u: segment, upsert: true })
}

/**
 * Writes to a sharded cluster carry no transaction numbers. There, only the epoch rejects the end of a copy that a former owner reports.
 * Such a write is delivered once its sender has been replaced.
 */
function deliverEndLate(destination: Network): void {
  const { server } = destination
  const isReplaced = ({ q }: Document): boolean => {
    const stored = server.collection('collections').get(q._id)
    return epochFields(q).some((field) => stored?.[field] > q[field].$not.$gt)
  }
  destination.lateForm = (_, command) => {
    if (command['update'] !== 'collections') return 'numbered'
    const statements = command['updates'] as Document[]
    if (!statements.every(({ q }) => epochFields(q).length > 0)) return 'numbered'
    return statements.some(isReplaced) ? 'unnumbered' : 'not yet'
  }
  server.alter = (collection, statement) => {
    if (collection !== 'collections') return statement
    const fenced = new Set(epochFields(statement['q']))
    const q = Object.entries(statement['q']).filter(([field]) => !fenced.has(field))
    return { ...statement, q: Object.fromEntries(q) }
  }
}

function epochFields(filter: Document): string[] {
  return Object.keys(filter).filter((field) => field.startsWith('epochs.'))
}

/** Defects of the copy. Only worlds with initially uncopied collections can detect them. */
export const copyMutations = {
  'copy-judged-late': {
    what: 'whether a planned collection has open segments is judged by a read of the segments that precedes the read of the plan',
    code: () => {
      const stores = new Map<string, SegmentStore>()
      const older = new Map<string, Promise<unknown>>()
      const self = (): string => JSON.stringify(hostProcess.identity())
      const read = SegmentStore.prototype.openCollections
      const reverts = [
        swap(
          SegmentStore.prototype,
          'openCollections',
          (former) =>
            function (this: unknown) {
              stores.set(self(), this as SegmentStore)
              const found = older.get(self()) ?? former.call(this)
              older.delete(self())
              return found
            },
        ),
        swap(
          SharedCatalog.prototype,
          'reload',
          (reload) =>
            async function (this: unknown) {
              const process = self()
              const store = stores.get(process)
              const open = store && read.call(store)
              await open?.catch(() => {})
              if (open) older.set(process, open)
              await reload.call(this)
            },
        ),
      ]
      return () => {
        for (const revert of reverts) revert()
      }
    },
  },
  'plan-unfenced': {
    what: 'the coordinator stores plans without a check of its term',
    world: (destination) => deliverIntoNextPlan(destination, 'update'),
  },
  'plan-removal-unfenced': {
    what: 'the coordinator removes plans without a check of its term',
    world: (destination) => {
      storeIncompletePlan(destination)
      deliverIntoNextPlan(destination, 'delete')
    },
  },
  'copy-end-unfenced': {
    what: 'a partition ends the copy of a collection without a check of its epoch',
    world: deliverEndLate,
  },
  'tombstones-removed-early': {
    what: 'tombstones are removed when the partitions of one instance have reconciled them',
    code: () =>
      swap(
        CollectionStore.prototype,
        'endCopy',
        (endCopy) =>
          function (this: unknown, uuid, partitions, count) {
            return endCopy.call(this, uuid, partitions, (partitions as ReadonlyMap<number, number>).size || count)
          },
      ),
  },
  'no-tombstones': {
    what: 'a delete leaves no tombstone while its collection is copied',
    code: () => swap(TombstoneStore.prototype, 'add', () => async () => {}),
  },
  'tombstones-unread': {
    what: 'a copy ends without a read of its tombstones',
    code: () => swap(CopyEnds.prototype, 'isRecorded', () => async () => false),
  },
} satisfies Record<string, Mutation>
