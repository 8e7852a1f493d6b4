import { type ChangeEvent, parseChangeEvent } from '../../src/domain/change-event.ts'
import { readChangeStream } from '../../src/mongo/change-stream.ts'
import { Cluster } from '../../src/mongo/cluster.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { type RetryContext, RetryMonitor } from '../../src/mongo/retry.ts'

export interface TestContext extends RetryContext {
  /** The retries in their order: what was retried, and because of which error. */
  readonly retried: { what: string; error: unknown }[]
  stop(): void
}

export function testContext(): TestContext {
  const controller = new AbortController()
  const retried: TestContext['retried'] = []
  return {
    monitor: new RetryMonitor(),
    signal: controller.signal,
    onRetry: (what, error) => retried.push({ what, error }),
    retried,
    stop: () => controller.abort(),
  }
}

/** Connects to a cluster with an `appName` by which a fail point can select its commands. */
export function testCluster(uri: string, appName = 'tandem-test'): Cluster {
  return new Cluster('cluster0', uri, appName)
}

/** Runs `work`, and returns the change events of its operations as tandem reads them. */
export async function changesDuring(cluster: Cluster, work: () => Promise<unknown>): Promise<ChangeEvent[]> {
  await appendOplogNote(cluster, 'test')
  const start = cluster.latest + 1n
  await work()
  await appendOplogNote(cluster, 'test')
  const end = cluster.latest
  const context = testContext()
  const events: ChangeEvent[] = []
  for await (const batch of readChangeStream(cluster, { kind: 'time', time: start }, context)) {
    events.push(...batch.events.map(parseChangeEvent))
    if (batch.position.time >= end) break
  }
  if (context.retried.length > 0) throw context.retried[0]?.error
  return events
}
