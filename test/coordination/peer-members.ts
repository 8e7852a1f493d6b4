import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../../src/coordination/coordination.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { unread } from '../../src/coordination/ownership-store.ts'
import { Peers } from '../../src/coordination/peers.ts'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import type { PublicState } from '../../src/domain/progress.ts'
import { testContext } from '../mongo/clusters.ts'
import type { OneSet } from '../mongo/one-set.ts'
import { heartbeatOf, idleProgress } from './liveness-stores.ts'

/** Instances with a real stored sync and a real liveness store. The test determines which of them leads. */

export const never = new AbortController().signal
export const syncStore = (one: OneSet) => new SyncStore(one.cluster, testContext(), 0)

/** The number of the newest term. Each coordinator gets its own term. */
let terms = 0

export interface Member {
  peers: Peers
  leads: (leading: boolean) => void
  /** Returns the last term of this member as the coordinator; 0 if it has had none. */
  term: () => number
  /** Publishes a heartbeat with this state. */
  publish: (state: PublicState) => Promise<void>
  /** Sets the instances that hold a lease, as this member observes them. */
  observes: (members: string[]) => void
  /** Sets the revision of the sync's state that its last round has read, and the age of that read, ms. */
  reads: (revision: number | null, ageMS: number) => void
}

export function member(one: OneSet, id: string, leading = false): Member {
  const role = {
    leading,
    term: leading ? ++terms : 0,
    members: [] as string[],
    hasLeft: () => false,
    observed: unread(),
    changed: () => sleep(20),
  }
  const liveness = new MongoLiveness(one.cluster)
  const coordination = role as unknown as Coordination
  return {
    peers: new Peers({ coordination, store: syncStore(one), liveness, id }),
    leads: (leading) => {
      role.leading = leading
      if (leading) role.term = ++terms
    },
    term: () => role.term,
    observes: (members) => {
      role.members = members
    },
    reads: (revision, ageMS) => {
      role.observed = { ...unread(), revision, readAt: performance.now() - ageMS }
    },
    publish: (state) => liveness.publish(heartbeatOf(id, { progress: { ...idleProgress, state } })),
  }
}

export const isPending = async (promise: Promise<unknown>): Promise<boolean> => {
  const winner = await Promise.race([promise.then(() => 'over').catch(() => 'over'), sleep(600, 'pending')])
  return winner === 'pending'
}
