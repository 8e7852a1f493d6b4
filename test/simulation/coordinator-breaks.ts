import type { Document } from 'mongodb'
import type { Mutation } from './mutation.ts'
import type { Network } from './network.ts'

/** Removes conditions from the filters of all writes to one collection. */
function unguarded({ server }: Network, collection: string, conditions: readonly string[]): void {
  server.alter = (name, statement) => {
    if (name !== collection) return statement
    const q = Object.entries(statement['q'] as Document).filter(([field]) => !conditions.includes(field))
    return { ...statement, q: Object.fromEntries(q) }
  }
}

/**
 * Mutations that remove the guards of what the coordinator stores. Writes to a sharded cluster carry no transaction
 * numbers, so the server does not reject delayed writes of a former coordinator by their number. Only the term in the
 * filter prevents such a write from ending a barrier, and only the revision prevents it from replacing the sync state.
 * These mutations deliver a delayed write after another coordinator has stored its own term or state.
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
    what: 'the state of the sync is stored without a check that no other state was stored since it was read',
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
