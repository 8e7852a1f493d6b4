import type { Db, Document } from 'mongodb'
import { expectAnswer, type Probe } from './probe.ts'

/** Probes of server behavior on which tandem relies when it defers options until the commit and restores them. */
export const definitionProbes: readonly Probe[] = [
  {
    name: 'an index becomes unique in place',
    side: 'destination',
    reason: 'unique indexes are created without the constraint and become unique at the commit',
    since: 6,
    run: async ({ db }) => {
      const collection = db.collection('unique')
      await collection.createIndex({ u: 1 })
      await db.command({ collMod: 'unique', index: { name: 'u_1', prepareUnique: true } })
      await db.command({ collMod: 'unique', index: { name: 'u_1', unique: true } })
      const index = await indexOf(db, 'unique', 'u_1')
      expectAnswer(index?.['unique'] === true, 'a unique index', index)
      return 'unique: true'
    },
  },
  {
    name: 'an index is hidden and shown in place',
    side: 'destination',
    reason: 'hidden indexes are hidden only at the commit',
    run: async ({ db }) => {
      await db.collection('hidden').createIndex({ h: 1 })
      await db.command({ collMod: 'hidden', index: { name: 'h_1', hidden: true } })
      const hidden = await indexOf(db, 'hidden', 'h_1')
      expectAnswer(hidden?.['hidden'] === true, 'a hidden index', hidden)
      await db.command({ collMod: 'hidden', index: { name: 'h_1', hidden: false } })
      const shown = await indexOf(db, 'hidden', 'h_1')
      expectAnswer(shown?.['hidden'] === undefined, 'an index that is not hidden', shown)
      return 'hidden: true, then not'
    },
  },
  {
    name: 'the expiry of a TTL index changes in place',
    side: 'destination',
    reason: 'documents must not expire on the destination before the commit',
    run: async ({ db }) => {
      await db.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds: 2_147_483_647 })
      await db.command({ collMod: 'expiring', index: { name: 'at_1', expireAfterSeconds: 3_600 } })
      const index = await indexOf(db, 'expiring', 'at_1')
      expectAnswer(Number(index?.['expireAfterSeconds']) === 3_600, 'expireAfterSeconds 3600', index)
      return 'expireAfterSeconds: 3600'
    },
  },
  {
    name: 'the size of a capped collection changes in place',
    side: 'destination',
    reason: 'capped collections are created without their limit and get it at the commit',
    since: 6,
    run: async ({ db }) => {
      await db.createCollection('capped', { capped: true, size: 1_048_576 })
      await db.command({ collMod: 'capped', cappedSize: 65_536 })
      const [listed] = await db.listCollections({ name: 'capped' }).toArray()
      const { options } = listed as unknown as { options: { size?: number } }
      expectAnswer(options.size === 65_536, 'size 65536', options)
      return 'size: 65536'
    },
  },
  ...(['source', 'destination'] as const).map(
    (side): Probe => ({
      name: 'collections are listed with their UUID',
      side,
      reason: 'tandem recognizes by its UUID whether a collection was dropped and created again',
      run: async ({ db }) => {
        await db.createCollection(`listed_${side}`)
        const [listed] = (await db.listCollections({ name: `listed_${side}` }).toArray()) as Document[]
        expectAnswer(listed?.['info']?.uuid?.sub_type === 4, 'info.uuid', listed)
        return 'info.uuid'
      },
    }),
  ),
]

async function indexOf(db: Db, collection: string, name: string): Promise<Document | undefined> {
  return (await db.collection(collection).indexes()).find((index) => index.name === name)
}
