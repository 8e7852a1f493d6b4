import { BSON, type Document } from 'mongodb'
import { expect, it } from 'vitest'
import { type ClusterTime, clusterTime, ordinalOf, secondsOf } from '../../src/domain/cluster-time.ts'
import { noRemap } from '../../src/domain/namespace-remap.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { TransientReplyError } from '../../src/mongo/errors.ts'
import { testContext } from './clusters.ts'

/** Tests how a stream handles replies that servers have sent, and that a test cannot make a server send. */

const hex = (value: number) => value.toString(16).padStart(8, '0').toUpperCase()
const tokenAt = (time: ClusterTime) => ({ _data: `82${hex(secondsOf(time))}${hex(ordinalOf(time))}0000` })
const at = (seconds: number) => clusterTime(seconds, 1)

interface ScriptedReply {
  /** The time of `postBatchResumeToken`. Null omits the token. */
  token: ClusterTime | null
  events?: ClusterTime[]
  /** Whether the server ends the cursor with this reply. */
  ended?: boolean
}

/**
 * A cluster that replies to each aggregate and getMore with the next of these batches, and repeats the last one. It
 * ignores the content of the commands.
 */
function scripted(batches: ScriptedReply[], sent: Document[] = []): Cluster {
  let next = 0
  const answer = async (_: string, command: Document): Promise<Document> => {
    sent.push(command)
    if ('killCursors' in command) return {}
    const { token, events = [], ended } = batches[Math.min(next++, batches.length - 1)] as ScriptedReply
    const documents = events.map((time) => Buffer.from(BSON.serialize({ _id: tokenAt(time) })))
    const field = 'aggregate' in command ? 'firstBatch' : 'nextBatch'
    const position = token === null ? {} : { postBatchResumeToken: tokenAt(token) }
    return { cursor: { id: ended ? 0 : 1, ns: 'admin.$cmd.aggregate', [field]: documents, ...position } }
  }
  const startSession = () => ({ endSession: async () => {} })
  const names = noRemap
  return { before6: false, sharded: false, names, startSession, read: answer, endLater: () => {} } as unknown as Cluster
}

it('a position does not move back when the server returns an older position without events', async () => {
  const cluster = scripted([
    { token: at(10), events: [at(10)] },
    { token: at(4) },
    { token: at(12), events: [at(11), at(12)] },
    { token: at(11) },
    { token: at(13) },
  ])
  const times: ClusterTime[] = []
  for await (const { position } of readChangeStream(cluster, { kind: 'time', time: at(1) }, testContext())) {
    times.push(position.time)
    if (position.time === at(13)) break
  }
  expect(times).toEqual([at(10), at(12), at(13)])
})

it('the stream passes on events that the server repeats after a resume, because it is harmless to apply them twice', async () => {
  const cluster = scripted([
    { token: at(10), events: [at(10)] },
    { token: at(9), events: [at(8), at(9)] },
    { token: at(10), events: [at(10)] },
    { token: at(11), events: [at(11)] },
  ])
  const events: Buffer[] = []
  for await (const batch of readChangeStream(cluster, { kind: 'time', time: at(1) }, testContext())) {
    events.push(...batch.events)
    if (batch.position.time === at(11)) break
  }
  expect(events).toHaveLength(5)
})

const opened = (sent: Document[]): Document[] => sent.filter((command) => 'aggregate' in command)
const closed = (sent: Document[]): Document[] => sent.filter((command) => 'killCursors' in command)

it('a reply without a resume token leaves the cursor open, and its events are passed on', async () => {
  const sent: Document[] = []
  const script = [{ token: at(2) }, { token: null }, { token: null, events: [at(3), at(4)] }, { token: at(9) }]
  const batches: [ClusterTime, number][] = []
  for await (const batch of readChangeStream(scripted(script, sent), { kind: 'time', time: at(1) }, testContext())) {
    batches.push([batch.position.time, batch.events.length])
    if (batch.position.time === at(9)) break
  }
  expect(batches).toEqual([
    [at(2), 0],
    [at(4), 2],
    [at(9), 0],
  ])
  expect(opened(sent)).toHaveLength(1)
  expect(closed(sent)).toHaveLength(1)
})

it('a stream that the server ends is reopened at its last position, and the reason is reported', async () => {
  const sent: Document[] = []
  const context = testContext()
  const script = [{ token: at(2) }, { token: at(3), ended: true }, { token: at(3) }, { token: at(4) }]
  for await (const batch of readChangeStream(scripted(script, sent), { kind: 'time', time: at(1) }, context)) {
    if (batch.position.time === at(4)) break
  }
  expect(opened(sent).map(({ pipeline }) => pipeline[0].$changeStream.resumeAfter)).toEqual([undefined, tokenAt(at(3))])
  expect(context.retried).toEqual([
    { what: 'reading the change stream', error: new TransientReplyError('the server ended the change stream') },
  ])
})

it('a stream that the server ends again and again is reported, reopened after longer and longer delays, and fails with ChangeStreamStalled', async () => {
  const sent: Document[] = []
  const sentAt: number[] = []
  const context = testContext()
  const shown: (string | undefined)[] = []
  const cluster = scripted([{ token: at(2), ended: true }], sent)
  const read = cluster.read.bind(cluster)
  cluster.read = (database, command, options) => {
    if ('aggregate' in command) sentAt.push(performance.now())
    shown.push(context.monitor.current?.what)
    return read(database, command, options)
  }
  const content = { reopeningLimits: { openings: 4, withinMS: 0 } }
  const reading = async (): Promise<void> => {
    for await (const _ of readChangeStream(cluster, { kind: 'time', time: at(2) }, context, content));
  }
  await expect(reading()).rejects.toMatchObject({
    failure: 'ChangeStreamStalled',
    message: expect.stringContaining('the server ended the change stream'),
  })
  expect(opened(sent)).toHaveLength(4)
  expect(context.retried).toHaveLength(4)
  const pauses = sentAt.slice(1).map((time, index) => time - (sentAt[index] as number))
  // These are lower bounds only, because the delays are longer on a busy machine, and never shorter.
  for (const [index, atLeast] of [45, 140, 240].entries()) expect(pauses[index]).toBeGreaterThan(atLeast)
  expect(shown.at(-1)).toBe('reading the change stream')
  expect(context.monitor.current).toBeUndefined()
})
