import type { CatalogEntry, Segment } from '../../src/domain/catalog.ts'
import type { TypedValue } from '../../src/domain/raw-bson.ts'

/** The owner of the claims in the tests of segments. */
export const owner = 'copier#1'

/** Returns a segment of which nothing has been copied yet. */
export const segmentOf = (
  entry: CatalogEntry,
  from: TypedValue | null,
  to: TypedValue | null,
  ordinal = 0,
): Segment => ({
  ...{
    collection: entry.uuid,
    ordinal,
    priority: 0,
    from,
    to,
    last: null,
    natural: null,
    done: false,
    documents: 0,
    bytes: 0,
  },
  ...{ wasOwn: false, claim: 0, attempts: 0 },
})
