import { describe, expect, it } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { CleanedPair, give } from './cleaned-pair.ts'

/** Tests which cluster `tandem clean` makes writable after a commit has begun. */

const pair = new CleanedPair()

describe('after a commit that did not end', () => {
  it('makes the source writable too', async () => {
    const tandem = await pair.startedSync({ faults: { crashAt: 'verify' } }, pair.reversible)
    await tandem.post('commit').catch(() => {}) // The process may crash before it answers.
    await expect.poll(() => tandem.isRunning(), { timeout: 60_000 }).toBe(false)
    expect(await pair.blocked()).toEqual([true, true])
    expect(await pair.clean()).toMatchObject({
      code: 1,
      lines: expect.arrayContaining(['unblock: user writes on cluster0', 'unblock: user writes on cluster1']),
    })
    expect((await pair.clean({ yes: true })).code).toBe(0)
    await pair.expectClean()
  })
})

describe('after a commit', () => {
  it('leaves the former source blocked unless --unblock names it', async () => {
    const tandem = await pair.committedSync()
    await tandem.stop()
    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [
        'sync: cluster0 -> cluster1, committed',
        `drop: database ${metadataDatabase} on cluster1`,
        `drop: database ${olderMetadataDatabase} on cluster1`,
        expect.stringMatching(
          /^left alone: user writes on cluster0 stay blocked: .*source any more; --unblock cluster0/,
        ),
        'done: the clusters are cleaned up',
      ],
    })
    expect(await pair.blocked()).toEqual([true, false])
    expect(await pair.clean({ yes: true, unblock: ['cluster0'] })).toMatchObject({
      code: 0,
      lines: expect.arrayContaining(['unblock: user writes on cluster0']),
    })
    await pair.expectClean()
  })

  it('cleans up both clusters after a reversal', async () => {
    const tandem = await pair.committedSync()
    await give(tandem, 'reverse', 'COMMITTED')
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 180, what: 'canCommit after reverse' })
    await tandem.kill9()
    expect(await pair.clean()).toMatchObject({
      code: 1,
      lines: expect.arrayContaining([
        'sync: cluster1 -> cluster0, replicating',
        'unblock: user writes on cluster0',
        `drop: database ${metadataDatabase} on cluster0`,
        `drop: database ${metadataDatabase} on cluster1`,
      ]),
    })
    expect((await pair.clean({ yes: true })).code).toBe(0)
    await pair.expectClean()
  })
})
