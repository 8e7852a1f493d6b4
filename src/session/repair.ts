import type { Coordination } from '../coordination/coordination.ts'
import { RefusedError } from '../domain/errors.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Reconciles from the source what the last verdict named, between two attempts of a commit. Returns how many documents
 * were reconciled. Throws RefusedError WrongState when another instance coordinates or the commit is decided.
 */
export async function repair(session: SyncSession): Promise<number> {
  const { coordination, team, verification, runs } = session
  let repaired = 0
  // The command that follows (a resume or an abort) waits until the repair has ended.
  await runs.finish(new AbortController().signal, async () => {
    await session.hold()
    if (!coordination.leading) throw coordinatedElsewhere(coordination)
    if ((await team.load()).hasTag('decided')) throw decidedElsewhere()
    const replication = await session.load()
    await replication.holdBack()
    repaired = await replication.repair(verification.store)
  })
  return repaired
}

/**
 * The repair is refused, because after a success the operator would expect the difference to be gone and send resume.
 */
function coordinatedElsewhere({ id, coordinatorID }: Coordination): RefusedError {
  const there = coordinatorID === null || coordinatorID === id ? 'the coordinator' : `the coordinator, ${coordinatorID}`
  return new RefusedError(
    'WrongState',
    `repair is carried out by ${there}; nothing was changed here. Send it to the instance that tandem instances shows as the coordinator`,
  )
}

function decidedElsewhere(): RefusedError {
  return new RefusedError(
    'WrongState',
    'the commit was decided by another instance since: send resume, which ends it here too',
  )
}
