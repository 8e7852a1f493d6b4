import type { Document } from 'mongodb'
import { CopyEnds } from '../../src/apply/copy-ends.ts'
import { SharedCatalog } from '../../src/apply/shared-catalog.ts'
import { CollectionStore } from '../../src/mongo/collection-store.ts'
import { hostProcess } from '../../src/mongo/host-process.ts'
import { SegmentStore } from '../../src/mongo/segment-store.ts'
import { TombstoneStore } from '../../src/mongo/tombstone-store.ts'
import { type Mutation, swap } from './mutation.ts'
import type { Network } from './network.ts'

/**
 * Writes to a sharded cluster carry no transaction numbers. There, only the term rejects plans of a former coordinator, and only the
 * epoch rejects the end of a copy that a former owner reports. Such writes are delivered once their sender has been replaced.
 */
function lateWithoutNumber({ server }: Network, collection: 'segments' | 'collections'): Network['lateForm'] {
  return (sender, command) => {
    if ((command['update'] ?? command['delete']) !== collection) return 'numbered'
    const statements = (command['updates'] ?? command['deletes']) as Document[]
    // The definitions of collections carry the term too. They are not what these breaks are about.
    const termOf = ({ term }: Document): unknown => (collection === 'segments' ? term : undefined)
    const isFenced = ({ q }: Document): boolean => termOf(q) !== undefined || epochFields(q).length > 0
    const isReplaced = ({ q }: Document): boolean => {
      if (termOf(q)) return server.collection('ownership').get('coordinator')?.['owner'] !== sender.token
      const stored = server.collection('collections').get(q._id)
      return epochFields(q).some((field) => stored?.[field] > q[field].$not.$gt)
    }
    if (!statements.every(isFenced)) return 'numbered'
    return statements.some(isReplaced) ? 'unnumbered' : 'not yet'
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
    what: 'the coordinator writes and removes plans without a check of its term',
    world: (destination) => {
      destination.lateForm = lateWithoutNumber(destination, 'segments')
      destination.server.alter = (collection, { q: { term, ...q }, ...statement }) => ({
        ...statement,
        q: collection === 'segments' ? q : { ...q, ...(term === undefined ? {} : { term }) },
      })
    },
  },
  'copy-end-unfenced': {
    what: 'a partition ends the copy of a collection without a check of its epoch',
    world: (destination) => {
      destination.lateForm = lateWithoutNumber(destination, 'collections')
      destination.server.alter = (collection, statement) => {
        if (collection !== 'collections') return statement
        const fenced = new Set(epochFields(statement['q']))
        const q = Object.entries(statement['q']).filter(([field]) => !fenced.has(field))
        return { ...statement, q: Object.fromEntries(q) }
      }
    },
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
