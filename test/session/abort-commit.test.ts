import { expect, it, vi } from 'vitest'
import { RefusedError } from '../../src/domain/errors.ts'
import { abortWithOthers } from '../../src/session/abort-commit.ts'
import type { SyncInstance } from '../../src/session/sync-instance.ts'

/** An instance answers an abort that another instance has passed on. */

interface Known {
  state: string
  aborts: number
  commitAborted: boolean
  tags: string[]
}

function instance({ state, aborts, commitAborted, tags }: Known): SyncInstance {
  const sync = { context: { aborts, request: null }, hasTag: (tag: string) => tags.includes(tag), can: () => false }
  return {
    state,
    session: { peers: { sync } },
    actor: { getSnapshot: () => ({ context: { commitAborted } }) },
  } as unknown as SyncInstance
}

const rehearsed: Known = { state: 'RUNNING', aborts: 1, commitAborted: true, tags: [] }

it('an instance that has followed the abort of this commit answers success', async () => {
  const abort = vi.fn()
  await abortWithOthers(instance({ ...rehearsed, aborts: 2 }), 1, abort)
  await abortWithOthers(instance(rehearsed), undefined, abort)
  expect(abort).not.toHaveBeenCalled()
})

it('an instance that has followed only the abort of an earlier commit aborts this one', async () => {
  const abort = vi.fn()
  await abortWithOthers(instance(rehearsed), 1, abort)
  expect(abort).toHaveBeenCalledExactlyOnceWith(1)
})

it.each([
  ['COMMITTING', ['decided'], 'the commit is decided and can only be completed'],
  ['RUNNING', [], 'no commit was under way when this abort was sent'],
])('in %s with the tags %j, an abort that names no commit is refused with the reason', async (state, tags, text) => {
  const refused = abortWithOthers(instance({ ...rehearsed, state, tags, commitAborted: false }), null, vi.fn())
  await expect(refused).rejects.toThrow(RefusedError)
  await expect(refused).rejects.toThrow(text)
})
