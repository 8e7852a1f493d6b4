import type { MongoClient } from 'mongodb'
import { expect } from 'vitest'
import { type CleanOptions, runClean } from '../../src/clean/run-clean.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { databaseNames } from '../support/databases.ts'
import { type PairedSets, pairedSets } from '../support/paired-sets.ts'
import { footprint } from '../support/refusals.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** The two clusters of a test file, a sync that is given up, and calls of `tandem clean` for these clusters. */
export class CleanedPair {
  /** Blocks user writes on both clusters during a commit, as a sync that can be reversed has to. */
  readonly reversible = { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }
  readonly sets: PairedSets

  /** Registers hooks, so call it where vitest allows hooks to be registered. */
  constructor() {
    this.sets = pairedSets()
  }

  get clients(): [source: MongoClient, destination: MongoClient] {
    return [this.sets.sourceClient, this.sets.destinationClient]
  }

  /** Runs `tandem clean`, with a terminal if `answer` is given. Calls `onError` with each text on standard error. */
  async clean(
    options: Partial<CleanOptions> = {},
    answer?: boolean | (() => Promise<boolean>),
    onError: (text: string) => unknown = () => {},
  ) {
    let [out, err] = ['', '']
    const asked: string[] = []
    const clusters = { cluster0: this.sets.source.uri, cluster1: this.sets.destination.uri }
    const chosen = {
      redis: null,
      redisTls: {},
      syncName: null,
      unblock: [],
      yes: false,
      dryRun: false,
      json: false,
      ...options,
    }
    const code = await runClean(
      { ...clusters, ...chosen },
      {
        out: (text) => (out += text),
        err: (text) => {
          err += text
          onError(text)
        },
        ...(answer !== undefined && {
          confirm: async (lines) => {
            asked.push(...lines)
            return typeof answer === 'function' ? await answer() : answer
          },
        }),
      },
    )
    return { code, lines: out.split('\n').filter((line) => line !== ''), err, asked }
  }

  footprints(): Promise<unknown[]> {
    return Promise.all(this.clients.map(footprint))
  }

  /** Returns whether user writes are blocked on the source, and whether they are blocked on the destination. */
  blocked(): Promise<boolean[]> {
    return Promise.all(this.clients.map(writesBlocked))
  }

  async fillSource(): Promise<void> {
    const db = this.sets.sourceClient.db('shop')
    await db.collection('orders').insertMany([{ number: 1, at: new Date() }, { number: 2 }])
    await db.collection('orders').createIndex({ number: 1 }, { unique: true, name: 'byNumber' })
    await db.collection('orders').createIndex({ at: 1 }, { expireAfterSeconds: 3_600, name: 'byTime' })
    await db.collection('orders').createIndex({ other: 1 }, { hidden: true, name: 'byOther' })
    await db.createCollection('log', { capped: true, size: 4_096, max: 100 })
  }

  /** Fills the source and runs a sync until it can be committed. */
  async startedSync(options: Parameters<PairedSets['startInstance']>[0] = {}, body = {}): Promise<Tandem> {
    await this.fillSource()
    const tandem = await this.sets.startInstance(options)
    await startSync(tandem, body)
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
    return tandem
  }

  async committedSync(): Promise<Tandem> {
    const tandem = await this.startedSync({}, this.reversible)
    await give(tandem, 'commit', 'RUNNING')
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 180, what: 'COMMITTED' })
    return tandem
  }

  /** Returns a collection of the metadata database of the sync. */
  stored(name: string, client = this.sets.destinationClient) {
    return client.db(metadataDatabase).collection<{ _id: string }>(name)
  }

  /** Writes to the destination. If user writes are blocked there, it lifts the block and sets it again. */
  async writeBlocked(write: () => Promise<unknown>): Promise<void> {
    const client = this.sets.destinationClient
    const wasBlocked = await writesBlocked(client)
    const setBlock = (global: boolean) => client.db('admin').command({ setUserWriteBlockMode: 1, global })
    await setBlock(false)
    await write()
    await setBlock(wasBlocked)
  }

  async expectClean(): Promise<void> {
    for (const client of this.clients) {
      await client.db('afterwards').collection<{ n: number }>('things').insertOne({ n: 1 })
      expect((await databaseNames(client)).filter((name) => name.includes('tandem'))).toEqual([])
    }
    expect(await this.clean()).toMatchObject({
      code: 0,
      lines: ['sync: none is stored on these clusters', 'nothing to clean up'],
    })
  }
}

/**
 * Sends a command again and again until it has an effect. A command waits 20 seconds for the lease of the instance, and is refused
 * if the instance has no lease by then, which happens on a busy machine. A refused command may still take effect later.
 */
export async function give(tandem: Tandem, command: string, state: string): Promise<void> {
  const isGiven = async () =>
    (await tandem.progress()).state !== state || (await tandem.post(command)).body.success === true
  await expect.poll(isGiven, { timeout: 60_000, interval: 50 }).toBe(true)
}
