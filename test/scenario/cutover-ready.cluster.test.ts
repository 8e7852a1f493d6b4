import { expect, it } from 'vitest'
import { accepted, committed, readyToCommit } from '../support/cutover.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** When a commit is accepted. */

const pair = pairedSets()

it('after a resume only once the source was asked for its time: until then the lag is that of before the pause', async () => {
  await seedForCutover(pair.sourceClient)
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await readyToCommit(tandem)
  expect(await tandem.post('pause')).toEqual(accepted)
  {
    await using _ = await holdTandem(pair.sourceClient, 'ping')
    expect(await tandem.post('resume')).toEqual(accepted)
    expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
    expect(await tandem.post('commit')).toMatchObject({
      status: 409,
      body: { error: 'CannotCommit', errorDescription: expect.stringMatching(/not known yet/) },
    })
  }
  await readyToCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
})
