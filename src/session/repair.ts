import type { Repaired } from '../commit/repair.ts'
import type { Coordination } from '../coordination/coordination.ts'
import { RefusedError } from '../domain/errors.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Repairs the differences that the last verdict lists, between two commit attempts: writes the source's state to the
 * destination. Throws RefusedError WrongState when another instance coordinates or the commit is decided.
 */
export async function repair(session: SyncSession): Promise<Repaired> {
  const { coordination, peers, verification, runs } = session
  let repaired: Repaired = { documents: 0, unrepaired: new Map() }
  // The command that follows (a resume or an abort) waits until the repair has ended.
  await runs.finish(new AbortController().signal, async () => {
    await session.hold()
    if (!coordination.leading) throw coordinatedElsewhere(coordination)
    if ((await peers.load()).hasTag('decided')) throw decidedElsewhere()
    // Another instance has aborted the commit, so this instance applies changes again. The repair could write older
    // versions of documents after newer ones.
    if (runs.isOpen) throw abortedElsewhere()
    const replication = await session.load()
    await replication.undoPreparation()
    repaired = await replication.repair(verification.store)
  })
  return repaired
}

/**
 * Refuses the repair. If the command succeeded without a repair, the operator would assume that the differences are
 * gone, and would send resume.
 */
function coordinatedElsewhere(coordination: Coordination): RefusedError {
  return new RefusedError(
    'WrongState',
    `repair is carried out by ${otherCoordinator(coordination)}; nothing was changed here. Send it to the instance that tandem instances shows as the coordinator`,
  )
}

/** The coordinator with its id, if that is known. */
function otherCoordinator({ id, coordinatorID }: Pick<Coordination, 'id' | 'coordinatorID'>): string {
  return coordinatorID === null || coordinatorID === id ? 'the coordinator' : `the coordinator, ${coordinatorID}`
}

function decidedElsewhere(): RefusedError {
  return new RefusedError(
    'WrongState',
    'another instance has decided the commit in the meantime; send resume, which completes the commit in this instance too',
  )
}

function abortedElsewhere(): RefusedError {
  return new RefusedError(
    'WrongState',
    'another instance has aborted the commit in the meantime, and changes are applied again; nothing was repaired. Send resync for the collections that differ',
  )
}
