import { type Distribution, readDistributions } from '../definitions/sharding.ts'
import type { Finding } from '../domain/finding.ts'
import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { isKeyed } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * Time limit of the whole search, in ms. The search reads every `_id` of the selected sharded collections, except of
 * those whose shard key is `_id` and that have no collation. Collections that it cannot finish within the limit are
 * reported as not checked.
 */
const searchMS = 10_000

/**
 * Searches a sharded source for an `_id` on more than one shard. The server allows this unless the shard key is `_id`
 * itself (https://www.mongodb.com/docs/manual/core/sharding-shard-key/#unique-indexes). If the destination cannot hold
 * all documents with such an `_id`, the copy detects it too, and ends in FAILED.
 */
export const checkDuplicateIds: Check = async ({ source, destination, selection }) => {
  if (!source.sharded) return []
  const until = performance.now() + searchMS
  const findings: Finding[] = []
  const notFinished: string[] = []
  const notAllowed: string[] = []
  for (const distribution of await readDistributions(source)) {
    const { database, collection } = splitNamespace(distribution.name)
    if (!isUserDatabase(database) || isUniqueById(distribution)) continue
    if (!(await selection.selects(database, collection))) continue
    const found = await duplicatesOf(source, database, collection, until - performance.now())
    if (found === unfinished) notFinished.push(distribution.name)
    else if (found === refused) notAllowed.push(distribution.name)
    else if (found) findings.push(duplicated(distribution, destination.sharded))
  }
  if (notFinished.length > 0)
    findings.push(notChecked(`did not finish in ${searchMS / 1_000} seconds for ${listed(notFinished)}`))
  if (notAllowed.length > 0) findings.push(notChecked(`was refused by the source for ${listed(notAllowed)}`))
  return findings
}

/**
 * True if no `_id` can be on two shards. Under a collation, equal `_id`s may be different shard key values on different
 * shards.
 */
function isUniqueById({ key, collated }: Distribution): boolean {
  return key === null || (!collated && !isKeyed({ shardKey: key }))
}

/** The server refused the search: this user may not run it, or the server does not support it. */
const refused = Symbol('refused')
/** The search did not finish in time. */
const unfinished = Symbol('unfinished')

async function duplicatesOf(
  source: Cluster,
  database: string,
  collection: string,
  leftMS: number,
): Promise<boolean | typeof refused | typeof unfinished> {
  if (leftMS < 1) return unfinished
  const command = {
    aggregate: collection,
    pipeline: [
      { $project: { _id: 1 } },
      { $group: { _id: '$_id', documents: { $sum: 1 } } },
      { $match: { documents: { $gt: 1 } } },
      { $limit: 1 },
    ],
    cursor: {},
    allowDiskUse: true,
    maxTimeMS: Math.ceil(leftMS),
    readConcern: { level: 'majority' },
  }
  const search = RawCursor.readAll(source, database, command).catch((error): typeof unfinished => {
    if (codeOf(error) === code.maxTimeMSExpired) return unfinished
    throw error
  })
  const found = await ifAllowed(search)
  if (found === unfinished) return unfinished
  return found === null ? refused : found.length > 0
}

function duplicated({ name, collated }: Distribution, isDestinationSharded: boolean): Finding {
  const found = `${name} has documents with the same _id on different shards of the source`
  const canHold = isDestinationSharded && !collated
  return {
    severity: 'warning',
    name: 'DuplicateDocumentId',
    namespace: name,
    message: canHold
      ? `${found}; they stay different documents if the destination places them on different shards, otherwise the copy ends in FAILED (DuplicateDocumentId)`
      : `${found}; the copy would end in FAILED (DuplicateDocumentId)`,
    remedy: canHold
      ? 'none is needed if the shards of the destination own the same ranges of the shard key; otherwise give all but one of them another _id on the source'
      : 'on the source, give all but one of them another _id',
  }
}

function listed(names: string[]): string {
  return names.slice(0, 5).join(', ') + (names.length > 5 ? ` and ${names.length - 5} more` : '')
}

function notChecked(what: string): Finding {
  return {
    severity: 'info',
    name: 'DuplicateIdsNotChecked',
    message: `the search for duplicate _ids across shards of the source ${what}; if there are duplicates that the destination cannot hold, the copy ends in FAILED (DuplicateDocumentId)`,
    remedy: 'none is needed if the application generates unique _ids',
  }
}
