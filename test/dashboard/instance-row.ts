import type { InstanceRow } from '../../src/domain/instances.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

/** A row of `instances` in RUNNING. The instance `a` is the coordinator. */
export const instanceRow = (
  mongosyncID: string,
  progress: Partial<Progress> = {},
  status: InstanceRow['status'] = 'alive',
): InstanceRow => ({
  mongosyncID,
  coordinator: mongosyncID === 'a',
  status,
  lastSeenSeconds: 0,
  partitions: [],
  progress: { ...idleProgress, state: 'RUNNING', info: 'change event application', ...progress },
})
