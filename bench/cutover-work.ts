import type { Tandem } from '../test/support/tandem-process.ts'
import { writersTo } from './burst.ts'
import { startChild } from './child.ts'
import { commitUntilCanWrite, untilCaughtUp, untilState } from './cutover-commit.ts'
import { database, type Pair, type Server } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import type { UpdateWriterInput } from './update-writer.ts'

const steadySecondsMin = 3
const pausedWriters = 2

/** A sync with verification that could be committed. */
export interface Stage {
  pair: Pair
  tandem: Tandem
}

/** What goes on before a commit. Resolves when the last write is acknowledged, with figures of its own. */
export type Work = (stage: Stage, scale: number) => Promise<Record<string, number>>

export const writeSteadily =
  (operationsPerSecond: number, seconds: number): Work =>
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
  (operations: number): Work =>
  ({ pair }, scale) =>
    burstTo(pair.source, Math.ceil(operations * scale))

/** Documents of the collection are updated at full speed while the sync is paused. */
export const updateWhilePaused =
  (collection: string, seconds: number): Work =>
  async ({ pair, tandem }, scale) => {
    await send(tandem, 'pause')
    await untilState(tandem, 'PAUSED')
    const inputs = Array.from({ length: pausedWriters }, (_, writer): UpdateWriterInput => {
      return { uri: pair.source.uri, database, collection, writer, seconds: seconds * scale }
    })
    const team = await Promise.all(inputs.map((input) => startChild<{ operations: number }>('update-writer', input)))
    try {
      const began = performance.now()
      const counts = await Promise.all(team.map((child) => child.go()))
      const took = (performance.now() - began) / 1000
      await send(tandem, 'resume')
      await untilState(tandem, 'RUNNING')
      return { 'operations/s before': counts.reduce((sum, { operations }) => sum + operations, 0) / took }
    } finally {
      await Promise.all(team.map((child) => child[Symbol.asyncDispose]()))
    }
  }

/** A burst on the cluster that was the destination until the sync was committed and reversed. */
export const reverseAndWriteBurst =
  (operations: number): Work =>
  async ({ pair, tandem }, scale) => {
    await commitUntilCanWrite(tandem)
    await untilState(tandem, 'COMMITTED')
    await send(tandem, 'reverse')
    await untilCaughtUp(tandem)
    return await burstTo(pair.destination, Math.ceil(operations * scale))
  }

async function burstTo(server: Server, operations: number): Promise<Record<string, number>> {
  await using team = await writersTo(server, operations, 'mixed')
  const began = performance.now()
  await team.go()
  return { 'operations/s before': operations / ((performance.now() - began) / 1000) }
}

async function send(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${JSON.stringify(body)}\n${tandem.output()}`)
}
