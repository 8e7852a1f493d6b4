import { expect, it, onTestFinished, vi } from 'vitest'
import { ClaimNumbers } from '../../src/coordination/claim-numbers.ts'
import type { Coordination } from '../../src/coordination/coordination.ts'
import { CollectionCopy } from '../../src/copy/collection-copy.ts'
import { planCopy } from '../../src/copy/plan-copy.ts'
import { Catalog, type CatalogEntry } from '../../src/domain/catalog.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { runCopy } from './run-copy.ts'

let clusters: TwoClusters
emptiedClusters((two) => {
  clusters = two
})

const partitions = 1
const throttle = new Throttle(3)
const nearby = () => ({ source: 0, destination: 0 })
const inIdOrder = { decide: async () => null }

/** Returns the catalog entry that an instance loads before the collection is planned. */
async function unplanned(): Promise<CatalogEntry> {
  const entry = await clusters.entryOf('app', 'c', 'copying')
  entry.planned = false
  await clusters.metadata.collections.save([entry])
  return entry
}

/** Does the same as the coordinator, in the same order: stores the segments, stores the plan, opens the segments. */
async function plan(entry: CatalogEntry): Promise<void> {
  const { segments, collections } = clusters.metadata
  await segments.plan((await planCopy(clusters.source, entry, inIdOrder)) ?? [])
  await segments.open(await collections.savePlanned([entry]))
}

/** Returns the coordination of an instance that is not the coordinator and has its own lease term. */
function instance(members: string[]): Coordination {
  const segmentClaims = new ClaimNumbers()
  const fixed = { leading: false, token: 'follower#1', coordinatorEpoch: 0, isExpired: () => false }
  return { ...fixed, members, segmentClaims } as unknown as Coordination
}

/** Returns the copy of an instance that is by default not the coordinator. `reload` may do more than read the catalog again. */
function follower(
  catalog: Catalog,
  reload: () => Promise<void>,
  copyEnded: (entry: CatalogEntry) => Promise<void>,
  coordination = instance(['coordinator', 'follower']),
  loadedInTerm: number | null = null,
) {
  return new CollectionCopy({
    source: clusters.source,
    destination: clusters.destination,
    metadata: clusters.metadata,
    catalog,
    coordination,
    order: inIdOrder,
    partitionCount: partitions,
    throttle,
    context: clusters.context,
    startTime: clusters.source.latest,
    nextOrder: clusters.dependencies.nextOrder,
    reload,
    loadedInTerm,
    locate: async () => true,
    copyEnded,
    loadCopiedBytes: async () => {},
  })
}

async function createCollections(): Promise<void> {
  for (const client of [clusters.sourceClient, clusters.destinationClient]) await client.db('app').createCollection('c')
  await clusters.sourceClient
    .db('app')
    .collection('c')
    .insertMany([{ a: 1 }, { a: 2 }, { a: 3 }])
  await appendOplogNote(clusters.source, 'test')
}

// If a follower read the open segments before the plan, it would find none of this collection and end its copy at once.
it.each(['before', 'after'] as const)(
  'a follower does not end the copy of a collection that the coordinator plans %s the follower reads the catalog',
  async (moment) => {
    await createCollections()
    const planner = await unplanned()
    const catalog = new Catalog()
    catalog.add({ ...planner })
    let reads = 0
    const reload = async (): Promise<void> => {
      reads += 1
      if (reads === 1 && moment === 'before') await plan(planner)
      for (const stored of await clusters.metadata.collections.load()) {
        const known = catalog.get(stored.uuid)
        if (known) Object.assign(known, { planned: stored.planned || known.planned, state: stored.state })
      }
      if (reads === 1 && moment === 'after') await plan(planner)
    }
    const copiedAtEnd: number[] = []
    const copy = follower(catalog, reload, async ({ uuid }) => {
      copiedAtEnd.push(await clusters.destinationClient.db('app').collection('c').countDocuments())
      await clusters.metadata.collections.endCopy(uuid, new Map([[0, 1]]), partitions)
    })
    expect(await runCopy(copy, catalog, throttle)).toEqual({ type: 'copy.completed' })
    expect(copiedAtEnd).toEqual([3])
  },
)

it('a delayed write of a definition from before the plan does not remove the plan', async () => {
  await createCollections()
  const entry = await unplanned()
  const stale = { ...entry }
  await plan(entry)
  await clusters.metadata.collections.save([stale])
  const { estimatedBytes, estimatedDocuments } = entry
  expect(await clusters.metadata.collections.load()).toMatchObject([
    { planned: true, estimatedBytes, estimatedDocuments },
  ])
  expect(estimatedDocuments).toBe(3)
})

it('a copy that begins again in the same lease term continues its claimed segments, also after the clock was set back', async () => {
  await createCollections()
  const entry = await unplanned()
  await plan(entry)
  const catalog = new Catalog()
  catalog.add(entry)
  const alone = instance(['follower'])
  const copyOf = () =>
    follower(
      catalog,
      async () => {},
      async () => {},
      alone,
    )
  const former = copyOf()
  await former.begin(nearby)
  expect(await former.claim()).toHaveLength(1)
  await former.close()
  const clock = vi.spyOn(Date, 'now').mockReturnValue(Date.now() - 3_600_000)
  onTestFinished(() => clock.mockRestore())
  const copy = copyOf()
  clock.mockRestore()
  await copy.begin(nearby)
  expect(await copy.claim()).toHaveLength(1)
  await copy.close()
})

it.each([
  [3, 'plans', 0, 1],
  [1, 'reloads', 1, 0],
])('with a catalog of term %i, the coordinator of term 3 %s it', async (loadedInTerm, _, reloads, claimed) => {
  await createCollections()
  const entry = await unplanned()
  const catalog = new Catalog()
  catalog.add({ ...entry })
  // In term 2, another instance coordinated, planned the collection and began to copy it.
  if (loadedInTerm < 3) {
    await plan(entry)
    expect(await clusters.metadata.segments.claim('other#1', 1, 64, () => false)).toHaveLength(1)
  }
  let reads = 0
  const reload = async (): Promise<void> => {
    reads += 1
    for (const stored of await clusters.metadata.collections.load()) {
      const known = catalog.get(stored.uuid)
      if (known) known.planned = stored.planned
    }
  }
  const coordinator = Object.assign(instance(['follower']), { leading: true, coordinatorEpoch: 3 })
  const copy = follower(catalog, reload, async () => {}, coordinator, loadedInTerm)
  await copy.begin(nearby)
  expect(await copy.survey()).toBe(false)
  await copy.plan()
  expect(reads).toBe(reloads)
  expect(await copy.claim()).toHaveLength(claimed)
  await copy.close()
})

it.each([
  ['knows', 10, true],
  ['does not know', null, false],
])(
  'an instance that %s the copied bytes orders the reads of the catalog and of unfinished copies accordingly',
  async (_, totalCopied, together) => {
    await createCollections()
    const entry = await unplanned()
    await plan(entry)
    const order: string[] = []
    const reload = async (): Promise<void> => void order.push('reload')
    const catalog = new Catalog()
    catalog.add({ ...entry, planned: true, state: 'copied', totalCopied })
    const copy = follower(catalog, reload, async () => {})
    vi.spyOn(clusters.metadata.collections, 'copying').mockImplementation(async () => {
      await vi.waitFor(() => expect(order).toEqual(together ? ['reload'] : []))
      order.push('listed')
      return []
    })
    onTestFinished(() => void vi.restoreAllMocks())
    expect(await copy.survey()).toBe(true)
    // Other instances may store the bytes that they have copied until the list is read.
    expect(order).toEqual(together ? ['reload', 'listed'] : ['listed', 'reload'])
  },
)
