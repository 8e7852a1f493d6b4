import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, commit } from '../support/commits.ts'
import { patience, ReversiblePair, reverse, reversible } from '../support/reversible-pair.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** README: the audit trail records who sent which command. It is stored in the metadata of the sync. */

const pair = new ReversiblePair({})

async function trailOf(tandem: Tandem): Promise<string[]> {
  const answer = await fetch(`${tandem.url}/api/v1/audit`)
  const { entries } = (await answer.json()) as { entries: { command: string; error: string | null }[] }
  return entries.map(({ command, error }) => (error === null ? command : `${command} ${error}`)).reverse()
}

const storedOn = (client: typeof pair.leftClient): Promise<number> =>
  client.db(metadataDatabase).collection('audit').countDocuments()

it('README: the audit trail outlives the process, moves with a reversal, and is in the log', async () => {
  const before = ['start InvalidRequest', 'start', 'reverse WrongState', 'commit']
  {
    await using tandem = await pair.startTandem()
    // A refused start is not stored, because tandem does not write to the clusters.
    expect(await tandem.post('start', { source: 'cluster0' })).toMatchObject({ status: 400 })
    expect(await storedOn(pair.rightClient)).toBe(0)
    await startSync(tandem, reversible)
    expect(await tandem.post('reverse')).toMatchObject({ status: 409 })
    await commit(tandem)
    await vi.waitFor(async () => expect(await storedOn(pair.rightClient)).toBe(before.length), patience)
    expect(await trailOf(tandem)).toEqual(before)
    const logged = tandem
      .output()
      .split('\n')
      .filter((line) => line.includes('"message":"audit"'))
    expect(logged.map((line) => JSON.parse(line))).toMatchObject([
      { level: 'info', command: 'start', outcome: 'received', token: 'none', remoteAddress: '127.0.0.1' },
      { level: 'info', command: 'start', outcome: 'refused', error: 'InvalidRequest', remoteAddress: '127.0.0.1' },
      { command: 'start', outcome: 'received', error: null },
      { command: 'start', outcome: 'accepted', error: null },
      { command: 'reverse', outcome: 'received', error: null },
      { command: 'reverse', outcome: 'refused', error: 'WrongState' },
      { command: 'commit', outcome: 'received' },
      { command: 'commit', outcome: 'accepted' },
    ])
  }
  await using tandem = await pair.startTandem()
  await vi.waitFor(async () => expect(await trailOf(tandem)).toEqual(before), patience)
  await reverse(tandem)
  await vi.waitFor(async () => expect(await storedOn(pair.leftClient)).toBe(before.length + 1), patience)
  expect(await tandem.post('pause')).toEqual(accepted)
  expect(await trailOf(tandem)).toEqual([...before, 'reverse', 'pause'])
})
