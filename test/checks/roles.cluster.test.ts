import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neededOn } from '../../src/checks/privileges.ts'
import type { Finding } from '../../src/domain/finding.ts'
import { commit } from '../support/commits.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import type { CustomRole } from '../support/replica-set-members.ts'
import { connected, ReversiblePair, reverse, reversible, things } from '../support/reversible-pair.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** The roles of docs/privileges.md are enough for a sync. If one action is missing, `check` reports exactly that action. */

const page = readFileSync(path.join(repositoryRoot, 'docs/privileges.md'), 'utf8')

function roleOf(name: string): CustomRole {
  for (const [, text] of page.matchAll(/^db\.adminCommand\((\{\n[\s\S]*?\n\})\)$/gm)) {
    const { createRole: role, privileges } = JSON.parse(text as string)
    if (role === name) return { role, privileges }
  }
  throw new Error(`docs/privileges.md has no role ${name}`)
}

const pair = new ReversiblePair({ auth: true })
const topology = { topology: 'replicaSet' as const }
const plain = {
  enableUserWriteBlocking: 'destinationOnly' as const,
  reversible: false,
  verification: { enabled: true },
}
const strictest = {
  enableUserWriteBlocking: 'sourceAndDestination' as const,
  reversible: true,
  verification: { enabled: true },
}

const actionsOf = ({ privileges }: CustomRole) => privileges.map(({ actions }) => [...actions].sort())
const expected = ({ cluster, anywhere }: ReturnType<typeof neededOn>) => [[...cluster].sort(), [...anywhere].sort()]

async function ready(tandem: Tandem): Promise<Tandem> {
  await connected(tandem)
  return tandem
}

async function seed(client: MongoClient): Promise<void> {
  const db = client.db('app')
  await things(client).createIndexes([
    { key: { u: 1 }, name: 'u', unique: true },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 100_000 },
    { key: { h: 1 }, name: 'h', hidden: true },
  ])
  await db.createCollection('capped', { capped: true, size: 100_000, max: 3 })
  await db.collection('capped').insertMany([{ a: 1 }, { a: 2 }])
  await db.createCollection('validated', { validator: { a: { $gt: 5 } }, validationLevel: 'moderate' })
  await db.collection('validated').insertOne({ a: 1 }, { bypassDocumentValidation: true })
  await db.createCollection('view', { viewOn: 'things', pipeline: [] })
  await things(client).insertMany(Array.from({ length: 300 }, (_, _id) => ({ _id, u: _id })))
}

/** Makes every kind of change that a sync applies while it runs. */
async function change(client: MongoClient, round: number): Promise<void> {
  const db = client.db('app')
  await things(client).insertOne({ _id: `round ${round}`, u: 1_000 + round })
  await things(client).deleteOne({ _id: round })
  await things(client).updateOne({ _id: 100 + round }, { $set: { changed: true } })
  await db.createCollection(`made ${round}`)
  await db.collection(`made ${round}`).createIndex({ a: 1 }, { name: 'a' })
  await db.collection(`made ${round}`).dropIndex('a')
  await db.collection(`made ${round}`).rename(`renamed ${round}`)
  await db.collection(`gone ${round}`).insertOne({})
  await db.collection(`gone ${round}`).drop()
  await db.command({ collMod: 'validated', validationAction: round % 2 ? 'warn' : 'error' })
  await db.command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { u: round } }] })
  await db.createCollection(`view ${round}`, { viewOn: 'things', pipeline: [] })
  await db.collection(`view ${round}`).drop()
}

describe('the roles of docs/privileges.md', () => {
  it('contain the actions that check requires', () => {
    expect(actionsOf(roleOf('tandemSource'))).toEqual(expected(neededOn('source', plain, topology)))
    expect(actionsOf(roleOf('tandemDestination'))).toEqual(expected(neededOn('destination', plain, topology)))
    for (const role of ['source', 'destination'] as const) {
      expect(actionsOf(roleOf('tandemReversible'))).toEqual(expected(neededOn(role, strictest, topology)))
    }
  })

  it('are enough for a sync with every kind of change', async () => {
    await seed(pair.leftClient)
    await using tandem = await ready(
      await startTandem({
        cluster0: await pair.left.createUser('plain', 'secret', [roleOf('tandemSource')]),
        cluster1: await pair.right.createUser('plain', 'secret', [roleOf('tandemDestination')]),
      }),
    )
    const checked = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
    expect(checked.body['findings']).toEqual([])
    const verification = { initialCompareMethod: 'toHashedIndexKey' }
    const byHashes = await tandem.post('check', { source: 'cluster0', destination: 'cluster1', verification })
    expect(byHashes.body['findings']).toEqual([expect.objectContaining({ name: 'HashedVerification' })])
    await startSync(tandem)
    for (const round of [1, 2, 3]) await change(pair.leftClient, round)
    await commit(tandem)
    await pair.expectEqual()
  })

  it('are enough to reverse a sync twice', async () => {
    await seed(pair.leftClient)
    const role = roleOf('tandemReversible')
    await using tandem = await ready(
      await startTandem({
        cluster0: await pair.left.createUser('reversing', 'secret', [role]),
        cluster1: await pair.right.createUser('reversing', 'secret', [role]),
      }),
    )
    await startSync(tandem, reversible)
    await change(pair.leftClient, 1)
    await commit(tandem)
    for (const [cycle, client] of [pair.rightClient, pair.leftClient].entries()) {
      await change(client, 10 + cycle)
      await reverse(tandem)
      await change(client, 20 + cycle)
      await commit(tandem)
      await pair.expectEqual()
    }
  })
})

describe('if one action is missing, check reports exactly that action', () => {
  let tandem: Tandem
  const without = (role: CustomRole, missing: string): CustomRole => ({
    ...role,
    privileges: role.privileges.map((one) => ({
      ...one,
      actions: (one['actions'] as string[]).filter((action) => action !== missing),
    })),
  })
  const cases = [
    ['source', plain, 'tandemSource'],
    ['destination', plain, 'tandemDestination'],
    ['source', strictest, 'tandemReversible'],
    ['destination', strictest, 'tandemReversible'],
  ] as const

  beforeAll(async () => {
    const [left, right] = await Promise.all(
      [pair.left, pair.right].map((set) => set.createUser('narrow', 'secret', [{ role: 'narrowed', privileges: [] }])),
    )
    tandem = await ready(await startTandem({ cluster0: left as string, cluster1: right as string }))
  })
  afterAll(async () => {
    await tandem?.stop()
  })

  const grant = async (client: MongoClient, { privileges }: CustomRole): Promise<void> => {
    await client.db('admin').command({ updateRole: 'narrowed', privileges })
  }

  it.each(cases)('on the %s (%o, role %s)', async (side, options, name) => {
    const [own, other] = side === 'source' ? [pair.leftClient, pair.rightClient] : [pair.rightClient, pair.leftClient]
    const role = roleOf(name)
    await grant(other, roleOf(options.reversible ? name : side === 'source' ? 'tandemDestination' : 'tandemSource'))
    for (const missing of actionsOf(role).flat()) {
      await grant(own, without(role, missing))
      const { status, body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1', ...options })
      expect([missing, status, body['findings']]).toMatchObject([missing, 200, expect.any(Array)])
      const errors = (body['findings'] as Finding[]).filter(({ severity }) => severity === 'error')
      expect([missing, errors.map(({ message }) => message)]).toEqual([
        missing,
        [`the user on the ${side} lacks privileges: ${missing}`],
      ])
    }
  })
})
