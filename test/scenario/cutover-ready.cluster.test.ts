import { expect, it } from 'vitest'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { failPoint, holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** The conditions under which a commit is accepted. */

const pair = pairedSets()

it('after a resume, a commit is accepted only once the lag is known from the cluster time of the source', async () => {
  await seedForCutover(pair.sourceClient)
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  await canCommit(tandem)
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
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
})

it('after a restart, a commit is accepted only once the change stream is open at the stored position', async () => {
  await seedForCutover(pair.sourceClient)
  {
    await using tandem = await pair.startInstance()
    await startSync(tandem)
    await canCommit(tandem)
    await tandem.kill9()
  }
  const streams = { failCommands: ['aggregate'], namespace: 'admin.$cmd.aggregate', errorCode: 262 }
  await using held = await failPoint(pair.sourceClient, 'failCommand', streams)
  await using tandem = await pair.startInstance()
  // Before its fourth attempt to open the stream, the instance has read the source's cluster time.
  await held.reached(4)
  expect(await tandem.progress()).toMatchObject({
    state: 'RUNNING',
    info: 'change event application',
    canCommit: false,
  })
  expect(await tandem.post('commit')).toMatchObject({
    status: 409,
    body: { error: 'CannotCommit', errorDescription: expect.stringMatching(/change stream/) },
  })
  await held.release()
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
})
