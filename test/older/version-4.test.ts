import { describe, expect, it } from 'vitest'
import { completed, freshContext, type InstanceContext, storable } from '../../machines/instance-context.ts'
import { freshSync } from '../../machines/sync-context.ts'
import { pathOf } from '../../machines/sync-view.ts'
import { syncFrom } from '../../src/coordination/stored-sync.ts'
import { begin } from '../machines/instance-model.ts'
import { type Captured, captured, capturedInstance, capturedSync } from './captured-version-4.ts'
import { instanceOfVersion4, stagesOfVersion4 } from './version-4.ts'

/** For each captured state: the state of the sync in this release, and the state in which the instance boots. */
const expected: Record<keyof typeof captured, [sync: string, boots: string]> = {
  'RUNNING, copying': ['initialising', 'syncing.joining'],
  'RUNNING, canCommit': ['replicating', 'syncing.replicating.applying'],
  PAUSED: ['replicating', 'paused.resting'],
  'died at commitPoint': ['committing.takingTimestamp', 'syncing.replicating.committing'],
  'died at prepareIndexes': ['committing.preparing', 'syncing.replicating.committing'],
  'died at verdict': ['committing.verifying', 'syncing.replicating.committing'],
  'died at decide': ['committing.deciding', 'syncing.replicating.committing'],
  'died at unblock': ['decided.opening', 'syncing.finishing.handedOver'],
  'died at finishIndexes': ['decided.converting', 'syncing.finishing.handedOver'],
  'FAILED with VerificationFailed': ['failed', 'failed.watching'],
  COMMITTED: ['committed', 'committed.leaving'],
  'reversal died at reverseSwitch, former': ['reversing.moving', 'reversing.moving'],
  'reversal died at reverseSwitch, new': ['reversing.preparingDestination', 'reversing.preparingDestination'],
  'reversal died at reverseDefinitions, new': ['reversing.preparingDestination', 'reversing.preparingDestination'],
  'reversed, RUNNING': ['replicating', 'syncing.replicating.applying'],
}

describe.each(Object.entries<Captured>(captured))('%s', (name, { revision, value, ...fields }) => {
  const [sync, boots] = expected[name as keyof typeof captured]
  const context = { ...capturedSync, ...fields.context } as Record<string, unknown>
  const stages = { _id: 'sync', schemaVersion: 4, revision, value, context }
  const own = { ...capturedInstance, ...fields.instance } as Record<string, unknown>

  it('the sync keeps its state, and every field has the name of this release', () => {
    const { snapshot, revision: read } = syncFrom(stages, 0)
    expect([pathOf(snapshot), read]).toEqual([sync, revision])
    expect(Object.keys(snapshot.context).sort()).toEqual(Object.keys(freshSync).sort())
    const { initiallyVerified, commitTimestamp, ...same } = snapshot.context
    const { hashed, commitPoint, ...others } = context
    expect([initiallyVerified, commitTimestamp, same]).toEqual([hashed, commitPoint, others])
  })

  it('the instance boots into its former state, and its context has the names of this release', () => {
    const current = completed(own)
    expect(pathOf(begin(current))).toBe(boots)
    expect(Object.keys(current)).toEqual(Object.keys(freshContext))
    expect([current.initiallyVerified, current.commitTimestamp]).toEqual([own['hashed'], own['commitPoint']])
    expect(completed(storable(current))).toEqual(current)
  })

  it('the state that this release stores equals the captured state after conversion to version 4', () => {
    const { snapshot } = syncFrom(stages, 0)
    const stored = { _id: 'sync', revision, value: snapshot.value, context: snapshot.context }
    expect(stagesOfVersion4(stored)).toEqual(stages)
    const snapshotText = JSON.stringify(storable(completed(own) as InstanceContext))
    expect(JSON.parse(instanceOfVersion4({ snapshot: snapshotText })['snapshot'])).toEqual(own)
  })
})
