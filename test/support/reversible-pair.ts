import type { MongoClient } from 'mongodb'
import { expect, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit } from './commits.ts'
import { compareClusters } from './compare.ts'
import { type PairedSets, pairedSets } from './paired-sets.ts'
import type { ReplicaSet, ReplicaSetOptions } from './replica-set.ts'
import { type Row, rowsOf } from './rows.ts'
import { type Faults, startSync, startTandem, type Tandem } from './tandem-process.ts'

export const patience = { timeout: 30_000, interval: 20 }
export const reversible = { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }

/** Two clusters for the tests of a file, which are emptied before each test. `left` is cluster0, `right` is cluster1. */
export class ReversiblePair {
  readonly #sets: PairedSets

  /** Registers hooks, so it must run where vitest allows that. */
  constructor(options: ReplicaSetOptions) {
    this.#sets = pairedSets({ source: options, destination: options })
  }

  get left(): ReplicaSet {
    return this.#sets.source
  }

  get right(): ReplicaSet {
    return this.#sets.destination
  }

  get leftClient(): MongoClient {
    return this.#sets.sourceClient
  }

  get rightClient(): MongoClient {
    return this.#sets.destinationClient
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
        const record = await client.db(metadataDatabase).collection<Row>('sync').findOne({ _id: 'sync' })
        return (record?.['generation'] as number | undefined) ?? null
      }),
    )
  }
}

export const things = (client: MongoClient) => rowsOf(client, 'things')

export async function setBlocking(client: MongoClient, global: boolean): Promise<void> {
  await client.db('admin').command({ setUserWriteBlockMode: 1, global })
}

/** Resolves when a new process is connected and has loaded the stored sync. */
export const connected = (tandem: Tandem): Promise<Progress> => vi.waitFor(() => tandem.progress(), patience)

/** Reverses the sync and resolves when the reversed sync can be committed. */
export async function reverse(tandem: Tandem): Promise<Progress> {
  expect(await tandem.post('reverse')).toEqual(accepted)
  expect(['REVERSING', 'RUNNING']).toContain((await tandem.progress()).state)
  return await canCommit(tandem)
}
