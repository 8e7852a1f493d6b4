import type { Document } from 'mongodb'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { hostProcess, type ProcessIdentity } from './host-process.ts'
import { drainedEpoch } from './stored-names.ts'

/**
 * Returns the incarnations of processes that held this lease and whose writes are not known to have ended. There are
 * several if a successor crashed before it had waited for its own predecessor. The next holder waits for all of them.
 */
export function predecessorsOf(lease: Document): string[] {
  const several = lease['predecessors'] as string[] | undefined
  if (several) return several
  // An earlier version stored this field, and kept it after the writes had ended.
  const one = lease['predecessor'] as string | undefined
  return one && drainedEpoch(lease) < (lease['epoch'] as number) ? [one] : []
}

/**
 * True if the lease's holder was a process with the mongosyncID `id` and that process has certainly ended. Earlier
 * versions stored only the host name of the holder, which proves nothing.
 */
export function hasHolderEnded(lease: Document, id: string): boolean {
  const process = lease['process'] as ProcessIdentity | null | undefined
  return lease['owner'] === id && !!process && hostProcess.hasEnded(process)
}

/** MongoDB drivers cut off an application name after this many bytes (MongoDB Handshake specification). */
const applicationNameMax = 128

/**
 * Returns the name under which a server lists the connections of a process. It ends in the incarnation, by which
 * `writesEnded` finds the writes of the process. A long id is shortened here, because otherwise the driver would cut off
 * the incarnation.
 * @param id ASCII text
 */
export function applicationName(id: string, incarnation: string): string {
  const end = `:${incarnation}`
  return `tandem:${id}`.slice(0, applicationNameMax - end.length) + end
}

/**
 * Resolves when the destination no longer runs any write of these processes. It searches for the comment that every
 * write carries: routers forward the comment to the shards, but not the application name. A write that waits for a
 * collection lock does not show its command yet and is found by the application name.
 */
export async function writesEnded(destination: Cluster, incarnations: readonly string[]): Promise<void> {
  for (const incarnation of incarnations) {
    await destination.idle({
      $and: [
        {
          $or: [{ appName: { $regex: `:${incarnation}$` } }, { 'command.comment': { $regex: `:${incarnation}:` } }],
        },
        { $or: [{ op: { $in: ['insert', 'update', 'remove', 'command'] } }, { type: 'idleSession' }] },
      ],
      'command.hello': { $exists: false },
    })
  }
  // `idle` returns early when this process stops. The caller must not conclude that the writes have ended.
  if (destination.stopped?.aborted) throw new StoppedError()
}
