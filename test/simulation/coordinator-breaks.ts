import type { Document } from 'mongodb'
import type { Mutation } from './mutation.ts'
import type { Network } from './network.ts'

/** Removes conditions from the filters of one collection. */
function unguarded({ server }: Network, collection: string, conditions: readonly string[]): void {
  server.alter = (name, statement) => {
    if (name !== collection) return statement
    const q = Object.entries(statement['q'] as Document).filter(([field]) => !conditions.includes(field))
    return { ...statement, q: Object.fromEntries(q) }
  }
}

/**
 * Defects of what the coordinator stores. Writes to a sharded cluster carry no transaction numbers. There, only the term rejects a
 * barrier's end, and only the revision rejects a state of the sync, which arrives when another coordinator has stored its own.
 */
export const coordinatorMutations = {
  'barrier-unfenced': {
    what: 'the coordinator ends and removes barriers without a check of its term',
    world: (destination) => {
      unguarded(destination, 'barriers', ['term'])
      const endOf = (command: Document): Document | undefined =>
        command['update'] === 'barriers' ? command['updates'].find(({ u }: Document) => u.$set?.done) : undefined
      destination.isOftenLost = (command) => endOf(command) !== undefined
      destination.lateForm = (_, command) => {
        const end = endOf(command)
        if (!end) return 'numbered'
        const stored = destination.server.collection('barriers').get(end['q']._id)
        return stored?.['term'] > end['q'].term.$not.$gt ? 'unnumbered' : 'not yet'
      }
    },
  },
  'sync-unguarded': {
    what: 'the state of the sync is stored without a check that it is still as it was read',
    world: (destination) => {
      unguarded(destination, 'stages', ['revision'])
      destination.isOftenLost = (command) => command['findAndModify'] === 'stages'
      destination.lateForm = (_, command) => {
        if (command['findAndModify'] !== 'stages') return 'numbered'
        const stored = destination.server.collection('stages').get('sync')
        return stored?.['revision'] > command['query'].revision ? 'unnumbered' : 'not yet'
      }
    },
  },
} satisfies Record<string, Mutation>
