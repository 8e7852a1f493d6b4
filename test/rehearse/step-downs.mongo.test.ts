import { describe, expect, it } from 'vitest'
import { RehearsalCluster } from '../../src/rehearse/rehearsal-cluster.ts'
import { StepDowns } from '../../src/rehearse/step-downs.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'

describe('the elections of a rehearsal', () => {
  it('do not begin if the rehearsal ends while the phase of the sync is read', async () => {
    await using set = await borrowReplicaSet()
    const cluster = new RehearsalCluster('cluster0', set.uri)
    const stepDowns = new StepDowns()
    try {
      const electionId = async () => String((await cluster.client.db('admin').command({ hello: 1 }))['electionId'])
      const before = await electionId()
      await stepDowns.prepare([cluster])
      const ending = new AbortController()
      const phase = async () => {
        ending.abort()
        return 'copy' as const
      }
      await expect(stepDowns.round(phase, ending.signal, () => {})).rejects.toThrow(/aborted/)
      expect(stepDowns.done).toEqual([])
      expect(await electionId()).toBe(before)
    } finally {
      await Promise.all([stepDowns.close(), cluster.close()])
    }
  })
})
