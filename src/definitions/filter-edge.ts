import type { ChangeEvent } from '../domain/change-event.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { isTemporary } from '../domain/namespace-filter.ts'
import { notLost } from '../domain/not-lost.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'

/**
 * Throws FatalError UnsupportedChange for a rename across the filter's boundary. A collection that is renamed into the
 * filter brings documents for which there were no events. For a collection that is renamed out of the filter, it is
 * unclear whether the destination should keep it. A rename between databases is a different case: the server writes a
 * new collection under a temporary name in the target database and drops the old one. A temporary collection may leave
 * the filter, because it was never meant to stay.
 */
export async function refuseCrossing(
  { database, collection, to }: ChangeEvent,
  selection: Selection,
  context: RetryContext,
): Promise<void> {
  if (!to || selection.events === null) return
  const from = await isFollowed(selection, database, collection, context)
  const into = await isFollowed(selection, to.database, to.collection, context)
  if (from && !into && !isTemporary(collection)) throw renamedOut(database, collection, to.collection)
  if (into && !from) throw renamedIn(database, collection, to.collection)
}

export function isFollowed(
  selection: Selection,
  database: string,
  collection: string,
  context: RetryContext,
): Promise<boolean> {
  return retry(`following definitions of ${database}`, context, () => selection.selects(database, collection))
}

export function renamedOut(database: string, name: string, to: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `${namespace(database, name)} was renamed to ${namespace(database, to)}, which the filter leaves out, while changes were applied. Drop ` +
      `what was synced on the destination and start over with a filter that has both names, or neither. ${notLost.source}`,
  )
}

function renamedIn(database: string, name: string, to: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `${namespace(database, name)}, which the filter leaves out, was renamed to ${namespace(database, to)}, which it includes, while ` +
      'changes were applied. The changes of its documents before that were not followed. $out, mapReduce and a rename from another database ' +
      'have the same effect when the filter does not include the whole database. Drop what was synced on the destination and start over ' +
      `with a filter that has both names. ${notLost.source}`,
  )
}
