import type { InitialCompareMethod } from '../../src/domain/compare-method.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import type { RangeComparison } from '../../src/verify/compare-range.ts'
import { compareRangeOf } from '../../src/verify/read-range.ts'
import type { TwoClusters } from '../apply/two-clusters.ts'

/** Compares the collection `app.<name>` as the first pass compares one range. */
export async function compareBy(
  two: TwoClusters,
  compareMethod: InitialCompareMethod,
  name: string,
): Promise<RangeComparison & { suspects: Buffer[] }> {
  for (const cluster of [two.source, two.destination]) await appendOplogNote(cluster, 'test')
  const suspects: Buffer[] = []
  const comparison = await compareRangeOf(
    {
      clusters: two,
      notBefore: { source: two.source.latest, destination: two.destination.latest },
      mayReadSecondaries: false,
      suspect: (idElement) => suspects.push(Buffer.from(idElement)),
      waitForCapacity: async () => {},
      readAhead: () => ({ ranges: 1, batchBytes: 2 * 1024 * 1024 }),
      compareMethod,
    },
    await two.entryOf('app', name),
    { from: null, to: null },
  )
  return { ...comparison, suspects }
}
