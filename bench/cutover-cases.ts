import { burstCollection } from './burst.ts'
import { createCollections, indexes } from './cutover-sources.ts'
import { reverseAndWriteBurst, updateWhilePaused, type Workload, writeBurst, writeSteadily } from './cutover-work.ts'
import type { Link } from './delaying-proxy.ts'
import { load, type Shape } from './load.ts'
import { closeIdleFiles } from './many-collections.ts'
import { database, type PairOptions, type Server } from './servers.ts'

/** The load that a sync handles before its commit. Each case is a load that once made cutovers slow, or could do so. */
export interface CutoverCase {
  name: string
  title: string
  /** Maximum seconds from `commit` to `canWrite`. Twenty round trips to the clusters are added to it. */
  targetSeconds: number
  servers?: Pick<PairOptions, 'members' | 'extraArgs' | 'link'>
  /** The case takes minutes, so it runs only if `--case` names it. */
  onlyWhenNamed?: true
  /** Fields of the start request in addition to direction and verification. */
  start?: Record<string, unknown>
  /** Fills the empty source before the sync starts. */
  fill(source: Server, scale: number): Promise<void>
  /** Writes during the sync; absent if the case has none. */
  workload?: Workload
  /** True if the commit directly follows the last write. Otherwise the bench waits until the lag is 0 before it commits. */
  commitsAtOnce?: true
}

const smallDocumentBytes = 256
const burst = { targetSeconds: 3, fill: createBurst, workload: writeBurst(200_000) }

export const cutoverCases: readonly CutoverCase[] = [
  {
    name: 'steady',
    title: 'steady, 2,000 ops/s until commit',
    targetSeconds: 3,
    fill: (source, scale) => load(source, documents(1_000_000 * scale, 1_024)),
    workload: writeSteadily(2_000, 15),
    commitsAtOnce: true,
  },
  { name: 'burst', title: 'burst', ...burst },
  { name: 'burst-three', title: 'burst, three-node sets', servers: { members: 3 }, ...burst },
  {
    name: 'paused',
    title: 'updates while paused',
    targetSeconds: 3,
    fill: (source) => load(source, documents(100_000, 1_024)),
    workload: updateWhilePaused('c0', 40),
  },
  { name: 'collections', title: '1,000 collections', targetSeconds: 3, ...smallCollections(1_000) },
  {
    ...{
      name: 'collections-10k',
      title: '10,000 collections without secondary indexes',
      targetSeconds: 6,
      onlyWhenNamed: true,
    },
    ...smallCollections(10_000, { secondary: 0 }),
  },
  {
    name: 'indexes',
    title: '1,000 indexes, 200 unique',
    targetSeconds: 3,
    fill: (source, scale) =>
      createCollections(source, {
        ...{ collections: 20, documentsInEach: 500, documentBytes: smallDocumentBytes },
        indexesOfEach: indexes(Math.ceil(50 * scale), Math.ceil(10 * scale)),
      }),
  },
  {
    name: 'distance',
    title: '100 collections, 50 ms away',
    targetSeconds: 3,
    ...smallCollections(100, { link: { roundTripMS: 50 } }),
  },
  {
    ...{ name: 'distance-10k', title: '10,000 collections, 50 ms away', targetSeconds: 3, onlyWhenNamed: true },
    ...smallCollections(10_000, { link: { roundTripMS: 50 }, secondary: 0 }),
  },
  {
    name: 'million',
    title: '1,000,000 documents',
    targetSeconds: 3,
    fill: (source, scale) => load(source, documents(1_000_000 * scale, smallDocumentBytes)),
  },
  {
    name: 'reversed',
    title: 'burst after a reverse',
    targetSeconds: 3,
    start: { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' },
    fill: createBurst,
    workload: reverseAndWriteBurst(50_000),
  },
]

async function createBurst({ client }: Server): Promise<void> {
  await client.db(database).createCollection(burstCollection)
}

function documents(count: number, documentBytes: number): Shape {
  return { name: '1k', title: '', collections: 1, documents: Math.ceil(count), documentBytes }
}

/**
 * @param secondary number of indexes of each collection besides `_id`. Every collection and index is a file, and a
 * process may open only 20,000 files on some machines.
 */
function smallCollections(
  collections: number,
  { link = {}, secondary = 2 }: { link?: Link; secondary?: number } = {},
): Pick<CutoverCase, 'servers' | 'fill'> {
  return {
    servers: { extraArgs: closeIdleFiles, link },
    fill: (source, scale) =>
      createCollections(source, {
        ...{ collections: Math.ceil(collections * scale), documentsInEach: 10, documentBytes: smallDocumentBytes },
        indexesOfEach: indexes(secondary),
      }),
  }
}
