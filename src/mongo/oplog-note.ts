import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { TransientReplyError } from './errors.ts'

/** Writes a majority-acknowledged no-op to the oplog. Its time becomes available as `cluster.latest`. */
export async function appendOplogNote(cluster: Cluster, purpose: string): Promise<Document> {
  const reply = await cluster.read('admin', {
    appendOplogNote: 1,
    data: { tandem: purpose },
    writeConcern: { w: 'majority' },
  })
  const concern = reply['writeConcernError'] as { errmsg: string } | undefined
  if (concern) throw new TransientReplyError(`write concern not met: ${concern.errmsg}`)
  return reply
}
