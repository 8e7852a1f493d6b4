import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { fold, type Identity, idElementOf } from '../../src/documents/identity.ts'
import type { ChangeEvent } from '../../src/domain/change-event.ts'

const bytes = (document: Document): Buffer => Buffer.from(BSON.serialize(document))

type Change = [kind: 'insert' | 'update' | 'replace' | 'delete', k: number | null]

/** Returns the identity of one document after these changes. Each change has a shard key value or none. */
function folded(changes: Change[]): Identity | undefined {
  let identity: Identity | undefined
  for (const [kind, k] of changes) {
    const documentKey = k === null ? null : bytes({ k, _id: 1 })
    identity = fold(
      identity,
      { kind, documentKey, keyed: k !== null, document: null } as ChangeEvent,
      idElementOf(bytes({ _id: 1 })),
    )
  }
  return identity
}

describe('the document key of a changed document', () => {
  it.each<[string, Change[], number | null]>([
    ['is the key of its only event', [['update', 7]], 7],
    [
      'is the key that all its events have',
      [
        ['insert', 7],
        ['update', 7],
        ['replace', 7],
      ],
      7,
    ],
    ['is unknown without a shard key', [['update', null]], null],
    ['is unknown after a delete', [['delete', 7]], null],
    [
      'is unknown after an update and a delete',
      [
        ['update', 7],
        ['delete', 7],
      ],
      null,
    ],
    [
      'is unknown after a delete and an insert',
      [
        ['delete', 7],
        ['insert', 7],
        ['update', 7],
      ],
      null,
    ],
    [
      'is unknown after a change of the key',
      [
        ['update', 7],
        ['update', 8],
      ],
      null,
    ],
    [
      'is unknown after a change of the key and back',
      [
        ['update', 7],
        ['update', 8],
        ['update', 7],
      ],
      null,
    ],
    [
      'is unknown if one event does not have a key',
      [
        ['update', 7],
        ['update', null],
        ['update', 7],
      ],
      null,
    ],
  ])('%s', (_what, changes, k) => {
    expect(folded(changes)?.documentKey).toEqual(k === null ? null : bytes({ k, _id: 1 }))
  })
})
