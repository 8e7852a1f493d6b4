import type { Document } from 'mongodb'
import { StoppedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { hostProcess, type ProcessIdentity } from './host-process.ts'

/**
 * The processes that had this lease and whose writes nobody has seen end yet, by their incarnations. More than one when a
 * successor died before it had waited for its own predecessor: whoever comes next waits for all of them.
 */
export function predecessorsOf(lease: Document): string[] {
  const several = lease['predecessors'] as string[] | undefined
  if (several) return several
  // Stored by an earlier version, which let it stand when its writes had ended.
  const one = lease['predecessor'] as string | undefined
  const settled = (lease['settled'] as number | undefined) ?? 0
  return one && settled < (lease['epoch'] as number) ? [one] : []
}

/** Its holder was a process of the same id that has ended for certain. An earlier version stored a name of its host, which proves nothing. */
export function isProvenDead(lease: Document, id: string): boolean {
  const process = lease['process'] as ProcessIdentity | null | undefined
  return lease['owner'] === id && !!process && hostProcess.hasEnded(process)
}

/**
 * Resolves when the destination works on no write of those processes any more. By the comment that every write carries: a
 * router passes it on to the shards, where it does not pass on the name of the application. A write that waits in a
 * collection's lock has not shown its command yet and is found by the name.
 */
export async function writesEnded(destination: Cluster, incarnations: readonly string[]): Promise<void> {
  for (const incarnation of incarnations) {
    await destination.idle({
      $or: [{ appName: { $regex: `:${incarnation}$` } }, { 'command.comment': { $regex: `:${incarnation}:` } }],
      'command.hello': { $exists: false },
      op: { $in: ['insert', 'update', 'remove', 'command'] },
    })
  }
  // Who stops has not waited to the end, and must not say that they have ended.
  if (destination.stopped?.aborted) throw new StoppedError()
}
