import { type Document, MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, expect, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { compareClusters } from './compare.ts'
import { borrowReplicaSet } from './kept-sets.ts'
import { emptyBoth } from './paired-sets.ts'
import type { ReplicaSet, ReplicaSetOptions } from './replica-set.ts'
import { type Faults, startSync, startTandem, type Tandem } from './tandem-process.ts'

export interface Row extends Document {
  _id: number | string
}

export const patience = { timeout: 30_000, interval: 20 }
export const accepted = { status: 200, body: { success: true } }
export const reversible = { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }

/** Two clusters for the tests of a file, which are emptied before each test. `left` is cluster0, `right` is cluster1. */
export class ReversiblePair {
  left!: ReplicaSet
  right!: ReplicaSet
  leftClient!: MongoClient
  rightClient!: MongoClient

  /** Registers hooks, so it must run where vitest allows that. */
  constructor(options: ReplicaSetOptions) {
    beforeAll(async () => {
      ;[this.left, this.right] = await Promise.all([borrowReplicaSet(options), borrowReplicaSet(options)])
      this.leftClient = new MongoClient(this.left.uri)
      this.rightClient = new MongoClient(this.right.uri)
    })
    afterAll(async () => {
      await Promise.all([this.leftClient?.close(), this.rightClient?.close()])
      await Promise.all([this.left?.stop(), this.right?.stop()])
    })
    beforeEach(() => emptyBoth({ sourceClient: this.leftClient, destinationClient: this.rightClient }))
  }

  startTandem(faults: Faults = {}): Promise<Tandem> {
    return startTandem({ cluster0: this.left.uri, cluster1: this.right.uri, faults })
  }

  /** Starts an instance and commits a sync from left to right. */
  async commitSync(start: Record<string, unknown> = reversible): Promise<Tandem> {
    const tandem = await this.startTandem()
    await startSync(tandem, start)
    await commit(tandem)
    return tandem
  }

  async expectEqual(): Promise<void> {
    expect((await compareClusters(this.left.uri, this.right.uri)).differences).toEqual([])
  }

  /** Returns the generation of the sync record on the left and on the right; null if a cluster has none. */
  async generations(): Promise<(number | null)[]> {
    return await Promise.all(
      [this.leftClient, this.rightClient].map(async (client) => {
        const record = await client.db('tandem_internal').collection<Row>('sync').findOne({ _id: 'sync' })
        return (record?.['generation'] as number | undefined) ?? null
      }),
    )
  }
}

export const things = (client: MongoClient) => client.db('app').collection<Row>('things')

export async function setBlocking(client: MongoClient, global: boolean): Promise<void> {
  await client.db('admin').command({ setUserWriteBlockMode: 1, global })
}

/** Resolves when a new process is connected and has loaded the stored sync. */
export const connected = (tandem: Tandem): Promise<Progress> => vi.waitFor(() => tandem.progress(), patience)

export const canCommit = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 60, what: 'ready to commit' })

export const committed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })

export async function commit(tandem: Tandem): Promise<Progress> {
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  return await committed(tandem)
}

/** Reverses the sync and resolves when the reversed sync can be committed. */
export async function reverse(tandem: Tandem): Promise<Progress> {
  expect(await tandem.post('reverse')).toEqual(accepted)
  expect(['REVERSING', 'RUNNING']).toContain((await tandem.progress()).state)
  return await canCommit(tandem)
}
