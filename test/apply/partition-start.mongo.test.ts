import { describe, expect, it, vi } from 'vitest'
import { EventApplication, type OwnedPartition } from '../../src/apply/event-application.ts'
import type { ReconcileDependencies } from '../../src/documents/reconcile-steps.ts'
import { Catalog } from '../../src/domain/catalog.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { Metadata } from '../../src/mongo/metadata.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

/** Tests the position at which an instance starts when its partitions have different positions. */

const one = oneSet()

function applicationOf(metadata: Metadata, starts: [StreamPosition, StreamPosition], onAnswered = (): void => {}) {
  return new EventApplication({
    source: one.cluster,
    metadata,
    catalog: new Catalog(),
    documents: {} as Omit<ReconcileDependencies, 'context'>,
    context: testContext(),
    partitions: new Map<number, OwnedPartition>([
      [0, { epoch: 2, start: starts[0] }],
      [1, { epoch: 5, start: starts[1] }],
    ]),
    partitionCount: 4,
    selection: new Selection(one.cluster, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream: new SharedStream(),
    follow: async () => {},
    incompleteAfter: async () => [],
    converge: () => Promise.reject(new Error('a convergence is requested')),
    shared: true,
    isOnSource: async () => false,
    onAnswered,
  })
}

const now = async (): Promise<StreamPosition> => {
  await appendOplogNote(one.cluster, 'test')
  return { kind: 'time', time: one.cluster.latest }
}

describe('partitions with different positions', () => {
  it('start together at the earliest position, which is stored before any of their events is applied again', async () => {
    const metadata = new Metadata(one.cluster, testContext())
    const [early, late] = [await now(), await now()]
    await metadata.savePosition(0, 1, early)
    await metadata.savePosition(1, 4, late)
    const application = applicationOf(metadata, [early, late])
    // The application ends before it has read a batch, as in a crash.
    application.drain()
    await application.run()
    expect(await metadata.loadPartitions()).toEqual(
      new Map([
        [0, early],
        [1, early],
      ]),
    )
    // A delayed write of the former owner of partition 1 is rejected.
    await expect(metadata.savePosition(1, 4, late)).rejects.toMatchObject({ failure: 'LeaseLost' })
  })
})

describe('the position of an idle stream', () => {
  it('is stored only when it has moved', async () => {
    const metadata = new Metadata(one.cluster, testContext())
    // The positions are on the same replica set as the source here, so that a stored position would move the stream.
    const saved = vi.spyOn(metadata, 'savePositions').mockResolvedValue()
    const start = await now()
    let batches = 0
    const application = applicationOf(metadata, [start, start], () => {
      batches += 1
    })
    const running = application.run()
    await vi.waitFor(() => expect(batches).toBeGreaterThan(6), { timeout: 20_000 })
    application.drain()
    await running
    const positions = saved.mock.calls.map(([, position]) => position)
    expect(positions.length).toBeGreaterThan(1)
    for (const [at, position] of positions.entries()) expect(position).not.toEqual(positions[at - 1])
  })
})
