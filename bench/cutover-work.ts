import type { Tandem } from '../test/support/tandem-process.ts'
import { writersTo } from './burst.ts'
import { startChild } from './child.ts'
import { commitUntilCanWrite, untilCaughtUp, untilState } from './cutover-commit.ts'
import { database, type Pair, type Server } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import type { UpdateWriterInput } from './update-writer.ts'

const steadySecondsMin = 3
const pausedWriters = 2

/** A sync with verification that is ready to be committed. */
export interface ReadySync {
  pair: Pair
  tandem: Tandem
}

/** Writes to a cluster before a commit. Resolves with figures about these writes when the last one is acknowledged. */
export type Workload = (sync: ReadySync, scale: number) => Promise<Record<string, number>>

export const writeSteadily =
  (operationsPerSecond: number, seconds: number): Workload =>
  async ({ pair }, scale) => {
    const input: SteadyWriterInput = {
      ...{ uri: pair.source.uri, database, collection: 'steady' },
      ...{ operationsPerSecond, seconds: Math.max(steadySecondsMin, seconds * scale) },
    }
    await using writer = await startChild<{ operationsPerSecond: number }>('steady-writer', input)
    const written = await writer.go()
    return { 'operations/s before': written.operationsPerSecond }
  }

export const writeBurst =
  (operations: number): Workload =>
  ({ pair }, scale) =>
    burstTo(pair.source, Math.ceil(operations * scale))

/** Updates documents of the collection at full speed while the sync is paused. */
export const updateWhilePaused =
  (collection: string, seconds: number): Workload =>
  async ({ pair, tandem }, scale) => {
    await send(tandem, 'pause')
    await untilState(tandem, 'PAUSED')
    const inputs = Array.from({ length: pausedWriters }, (_, writer): UpdateWriterInput => {
      return { uri: pair.source.uri, database, collection, writer, seconds: seconds * scale }
    })
    const writers = await Promise.all(inputs.map((input) => startChild<{ operations: number }>('update-writer', input)))
    try {
      const began = performance.now()
      const counts = await Promise.all(writers.map((child) => child.go()))
      const took = (performance.now() - began) / 1000
      await send(tandem, 'resume')
      await untilState(tandem, 'RUNNING')
      return { 'operations/s before': counts.reduce((sum, { operations }) => sum + operations, 0) / took }
    } finally {
      await Promise.all(writers.map((child) => child[Symbol.asyncDispose]()))
    }
  }

/** Commits and reverses the sync, then writes a burst to the cluster that was the destination. */
export const reverseAndWriteBurst =
  (operations: number): Workload =>
  async ({ pair, tandem }, scale) => {
    await commitUntilCanWrite(tandem)
    await untilState(tandem, 'COMMITTED')
    await send(tandem, 'reverse')
    await untilCaughtUp(tandem)
    return await burstTo(pair.destination, Math.ceil(operations * scale))
  }

async function burstTo(server: Server, operations: number): Promise<Record<string, number>> {
  await using writers = await writersTo(server, operations, 'mixed')
  const began = performance.now()
  await writers.go()
  return { 'operations/s before': operations / ((performance.now() - began) / 1000) }
}

async function send(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${JSON.stringify(body)}\n${tandem.output()}`)
}
