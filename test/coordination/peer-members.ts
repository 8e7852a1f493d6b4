import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../../src/coordination/coordination.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { Peers } from '../../src/coordination/peers.ts'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import type { PublicState } from '../../src/domain/progress.ts'
import { testContext } from '../mongo/clusters.ts'
import type { OneSet } from '../mongo/one-set.ts'
import { beatOf, idleProgress } from './liveness-stores.ts'

/** Members of a team whose stored sync and liveness are real; who leads is said by the test. */

export const never = new AbortController().signal
export const syncStore = (one: OneSet) => new SyncStore(one.cluster, testContext(), 0)

/** Each coordinator has a term of its own. */
let terms = 0

export interface Member {
  team: Peers
  leads: (leading: boolean) => void
  /** Its term as the coordinator. */
  term: () => number
  beat: (state: PublicState) => Promise<void>
  /** Whose leases hold. */
  sees: (members: string[]) => void
}

export function member(one: OneSet, id: string, leading = false): Member {
  const office = {
    leading,
    term: leading ? ++terms : 0,
    members: [] as string[],
    hasLeft: () => false,
    changed: () => sleep(20),
  }
  const liveness = new MongoLiveness(one.cluster)
  const coordination = office as unknown as Coordination
  return {
    team: new Peers({ coordination, store: syncStore(one), liveness, id }),
    leads: (leading) => {
      office.leading = leading
      if (leading) office.term = ++terms
    },
    term: () => office.term,
    sees: (members) => {
      office.members = members
    },
    beat: (state) => liveness.publish(beatOf(id, { progress: { ...idleProgress, state } })),
  }
}

export const isPending = async (promise: Promise<unknown>): Promise<boolean> => {
  const winner = await Promise.race([promise.then(() => 'over').catch(() => 'over'), sleep(600, 'pending')])
  return winner === 'pending'
}
