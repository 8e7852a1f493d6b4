import { type Distribution, readDistributions } from '../definitions/sharding.ts'
import type { Finding } from '../domain/finding.ts'
import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { isKeyed } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf } from '../mongo/errors.ts'
import { RawCursor } from '../mongo/raw-cursor.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * Milliseconds for the whole search, which reads every `_id` of the sharded collections. Collections that are not
 * finished by then are reported as not checked.
 */
const searchMS = 10_000

/**
 * Searches a sharded source for an `_id` on more than one shard. The server allows it unless the shard key is `_id`
 * itself (https://www.mongodb.com/docs/manual/core/sharding-shard-key/#unique-indexes). The copy also detects it and
 * ends in FAILED.
 */
export const checkDuplicateIds: Check = async ({ source, selection }) => {
  if (!source.sharded) return []
  const until = performance.now() + searchMS
  const findings: Finding[] = []
  const unchecked: string[] = []
  for (const distribution of await readDistributions(source)) {
    const { database, collection } = splitNamespace(distribution.name)
    if (!isUserDatabase(database) || isUniqueById(distribution)) continue
    if (!(await selection.selects(database, collection))) continue
    const found = await duplicatesOf(source, database, collection, until - performance.now())
    if (found === null) unchecked.push(distribution.name)
    else if (found) findings.push(duplicated(distribution.name))
  }
  if (unchecked.length > 0) findings.push(notChecked(unchecked))
  return findings
}

function isUniqueById({ key }: Distribution): boolean {
  return !isKeyed({ shardKey: key })
}

/** Null if the search cannot finish in time, this user may not run it, or the cluster does not support it. */
async function duplicatesOf(
  source: Cluster,
  database: string,
  collection: string,
  leftMS: number,
): Promise<boolean | null> {
  if (leftMS < 1) return null
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
  const search = RawCursor.readAll(source, database, command).catch((error) => {
    if (codeOf(error) === code.maxTimeMSExpired) return null
    throw error
  })
  const found = await ifAllowed(search)
  return found && found.length > 0
}

function duplicated(name: string): Finding {
  return {
    severity: 'warning',
    name: 'DuplicateDocumentId',
    namespace: name,
    message: `${name} has documents with the same _id on different shards of the source; the copy would end in FAILED (DuplicateDocumentId)`,
    remedy: 'give all but one of them another _id, on the source',
  }
}

function notChecked(names: string[]): Finding {
  const shown = names.slice(0, 5).join(', ') + (names.length > 5 ? ` and ${names.length - 5} more` : '')
  return {
    severity: 'info',
    name: 'DuplicateIdsNotChecked',
    message: `the search for duplicate _ids across shards of the source did not finish in ${searchMS / 1_000} seconds for ${shown}; the copy would find them and end in FAILED (DuplicateDocumentId)`,
    remedy: 'none is needed if the application makes _ids unique',
  }
}
