import { BSON, type Document } from 'mongodb'
import { expect, it } from 'vitest'
import { type ClusterTime, clusterTime, ordinalOf, secondsOf } from '../../src/domain/cluster-time.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { testContext } from './clusters.ts'

/** What a stream does with answers that no server is known to give when asked, but that were seen after a resume. */

const hex = (value: number) => value.toString(16).padStart(8, '0').toUpperCase()
const tokenAt = (time: ClusterTime) => ({ _data: `82${hex(secondsOf(time))}${hex(ordinalOf(time))}0000` })
const at = (seconds: number) => clusterTime(seconds, 1)

/** A cluster that answers an aggregate and the getMores after it with these batches, whatever it is asked. */
function scripted(batches: { token: ClusterTime; events?: ClusterTime[] }[]): Cluster {
  let next = 0
  const answer = async (_: string, command: Document): Promise<Document> => {
    if ('killCursors' in command) return {}
    const { token, events = [] } = batches[Math.min(next++, batches.length - 1)] as (typeof batches)[number]
    const documents = events.map((time) => Buffer.from(BSON.serialize({ _id: tokenAt(time) })))
    const field = 'aggregate' in command ? 'firstBatch' : 'nextBatch'
    return { cursor: { id: 1, ns: 'admin.$cmd.aggregate', [field]: documents, postBatchResumeToken: tokenAt(token) } }
  }
  const startSession = () => ({ endSession: async () => {} })
  return { before6: false, sharded: false, startSession, read: answer } as unknown as Cluster
}

it('a position does not go back when the server tells an older one without events', async () => {
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

it('events that come again after a resume are passed on: to apply them twice changes nothing, to lose one would', async () => {
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
