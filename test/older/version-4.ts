import type { Db, Document } from 'mongodb'

/**
 * Converts stored documents to the forms of the release with schema version 4 of the sync's state. That release had
 * other names for some fields and states. `captured-version-4.ts` holds documents of that release.
 */

const states: Readonly<Record<string, string>> = { takingTimestamp: 'takingPoint', preparingDestination: 'adapting' }

function stateOf(value: unknown): unknown {
  if (typeof value === 'string') return states[value] ?? value
  return Object.fromEntries(Object.entries(value as Document).map(([name, inner]) => [name, stateOf(inner)]))
}

/** Converts the context of the sync or of an instance. The fields keep their order. */
function contextOf(context: Document): Document {
  const names: Readonly<Record<string, string>> = { initiallyVerified: 'hashed', commitTimestamp: 'commitPoint' }
  return Object.fromEntries(Object.entries(context).map(([name, value]) => [names[name] ?? name, value]))
}

/** Converts the document with the state of the sync. */
export function stagesOfVersion4({ value, context, ...others }: Document): Document {
  return { ...others, schemaVersion: 4, value: stateOf(value), context: contextOf(context as Document) }
}

/** Converts the document with the context of an instance. */
export function instanceOfVersion4({ snapshot, ...others }: Document): Document {
  const { reversing, ...context } = JSON.parse(snapshot as string)
  const stored = { ...contextOf(context), reversing: reversing && stateOf(reversing) }
  return { ...others, schemaVersion: 1, snapshot: JSON.stringify(stored) }
}

/**
 * Converts all documents of tandem's database to the forms of that release. Works also while users' writes are blocked.
 */
export async function storeAsVersion4(stored: Db): Promise<void> {
  const run = (command: Document) => stored.command({ ...command, mayBypassWriteBlocking: true })
  const update = (collection: string, q: Document, u: Document, multi = false) =>
    run({ update: collection, updates: [{ q, u, multi }] })
  for (const [collection, form] of [
    ['stages', stagesOfVersion4],
    ['instances', instanceOfVersion4],
  ] as const) {
    for (const document of await stored.collection(collection).find().toArray()) {
      await update(collection, { _id: document._id }, form(document))
    }
  }
  const renames = [
    ['collections', 2, { term: 'tenure' }],
    ['segments', 1, { priority: 'rank' }],
    ['barriers', 1, { observed: 'seen' }],
  ] as const
  for (const [collection, schemaVersion, $rename] of renames) {
    await update(collection, {}, { $rename, $set: { schemaVersion } }, true)
  }
  const key = { done: 1, owner: 1, rank: 1 }
  await run({ createIndexes: 'segments', indexes: [{ key, name: 'done_owner_rank' }] })
  if (await stored.collection('segments').indexExists('done_owner_priority')) {
    await run({ dropIndexes: 'segments', index: 'done_owner_priority' })
  }
}
