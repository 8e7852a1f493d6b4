import type { ClusterTime } from '../domain/cluster-time.ts'
import { type Cluster, toTimestamp } from './cluster.ts'
import { code, codeOf, isTransient } from './errors.ts'
import { askShards, type ShardRead } from './shard-connections.ts'
import { toUuid } from './uuid.ts'

/** Limit of the search in the oplog, ms. The first insert usually follows the creation at once. */
const searchMS = 5_000

/**
 * True if the oplog shows that a client inserted the first document of a collection. False if a command of the server
 * wrote it without a change event (`fromMigrate` in the oplog entry), and if the oplog does not show the insert: the
 * user may lack the privilege `find` on `local.oplog.rs`, or the oplog may be too long to be searched in time.
 * @param created the time at which the collection was created
 */
export async function isFilledByClient(source: Cluster, uuid: string, created: ClusterTime): Promise<boolean> {
  const search = async (read: ShardRead): Promise<boolean> => {
    const filter = { ts: { $gte: toTimestamp(created) }, ui: toUuid(uuid), op: 'i' }
    const command = { find: 'oplog.rs', filter, limit: 1, singleBatch: true, maxTimeMS: searchMS }
    const reply = await read('local', { ...command, projection: { fromMigrate: 1 } })
    const [first] = reply['cursor'].firstBatch as { fromMigrate?: boolean }[]
    return first !== undefined && first.fromMigrate !== true
  }
  if (source.sharded) {
    const answers = await askShards(source, search)
    return answers.some((answer) => 'result' in answer && answer.result)
  }
  try {
    return await search((database, command) => source.read(database, command))
  } catch (error) {
    const isAnswer = codeOf(error) === code.maxTimeMSExpired || (codeOf(error) !== undefined && !isTransient(error))
    if (!isAnswer) throw error
    return false
  }
}
