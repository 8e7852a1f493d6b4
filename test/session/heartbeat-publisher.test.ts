import { expect, it } from 'vitest'
import type { ObservedInstance } from '../../src/coordination/liveness.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { CurrentSession } from '../../src/session/current-session.ts'
import { HeartbeatPublisher } from '../../src/session/heartbeat-publisher.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'

/** Which instance's progress is reported for the coordinator's. */

const row = (id: string, progress: Progress): ObservedInstance => ({
  ...{ id, incarnation: 'one', progress, coordinator: true, partitions: [] },
  ...{ alive: true, lastSeenSeconds: 0, heartbeatTime: '1' },
})

/** The publisher of instance `own` after it has read these rows. `coordinator` is the coordinator it knows. */
async function publisher(coordinator: string, rows: ObservedInstance[]): Promise<HeartbeatPublisher> {
  const current = new CurrentSession()
  current.session = {
    coordination: { leading: false, coordinatorID: coordinator, held: new Map() },
    liveness: { instances: async () => rows },
  } as unknown as SyncSession
  const published = new HeartbeatPublisher({
    id: 'own',
    incarnation: 'one',
    current,
    reporter: { progress: () => ({ ...idleProgress, state: 'COMMITTED' }) },
    commands: { pollIfDue: () => {} },
    context: { signal: new AbortController().signal } as never,
  })
  await published.report()
  return published
}

it('the progress of another instance that coordinates is reported', async () => {
  const running: Progress = { ...idleProgress, state: 'RUNNING', totalEventsApplied: 3 }
  expect((await publisher('other', [row('own', idleProgress), row('other', running)])).coordinator).toEqual(running)
})

it('an instance that has given the role of the coordinator up does not report its last heartbeat in place of its progress', async () => {
  const earlier: Progress = { ...idleProgress, state: 'RUNNING' }
  expect((await publisher('own', [row('own', earlier)])).coordinator).toBe(null)
})
