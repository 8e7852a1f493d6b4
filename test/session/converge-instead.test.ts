import { expect, it } from 'vitest'
import { convergeInstead } from '../../src/session/converge-instead.ts'
import type { SyncInstance } from '../../src/session/sync-instance.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'

/** Returns a sync whose aborted commit is not undone, because an instance hangs that still renews its lease. */
function hanging(waitingFor: string[], coordinatorID: string | null) {
  const sync = {
    context: { aborts: 1, convergences: 0 },
    hasTag: () => false,
    matches: (state: string) => state === 'undoing',
  }
  const session = {
    peers: { load: async () => sync, view: {}, waitingFor },
    coordination: { coordinatorID },
    lease: { held: true, fence: () => {}, trouble: null },
    context: {},
  } as unknown as SyncSession
  const instance = {
    actor: { getSnapshot: () => ({ context: { failure: null } }), send: () => {} },
    parts: { context: { signal: new AbortController().signal } },
    session,
    ended: Promise.resolve(),
    refuseTakenOver: () => {},
  } as unknown as SyncInstance
  return { instance, session }
}

const things = new Map([['0123456789abcdef', 'app.things']])

it.each([
  ['the instances for which the coordinator waits', ['shardB', 'shardC'], 'shardA', 'it waits for shardB, shardC'],
  ['the coordinator', [], 'shardA', 'it waits for shardA'],
  ['that there is no coordinator', [], null, 'no instance coordinates'],
])(
  'a repair does not wait forever for the undoing of the commit, and its refusal names %s',
  async (_, waitingFor, coordinatorID, named) => {
    const { instance, session } = hanging(waitingFor, coordinatorID)
    await expect(convergeInstead(instance, session, things, AbortSignal.abort())).rejects.toMatchObject({
      refusal: 'WrongState',
      message: expect.stringMatching(new RegExp(`app\\.things.*${named}.*resync`)),
    })
  },
)
