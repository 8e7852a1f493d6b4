import { type Catalog, type CatalogEntry, needsOneLane } from '../domain/catalog.ts'
import type { WholeCollection } from '../mongo/change-stream.ts'

/**
 * Returns the collections that belong to partition 0 as a whole: capped ones, because their insertion order counts, and
 * those with a collation, under which different `_id`s may be equal.
 */
export function wholeCollections(catalog: Catalog): WholeCollection[] {
  return catalog.entries().flatMap((entry) => (needsOneLane(entry) ? [at(entry)] : []))
}

function at({ uuid, database, sourceName: name }: CatalogEntry): WholeCollection {
  return { uuid, database, name }
}

/**
 * Returns whether both lists contain the same collections under the same names. Names count because the stream filter
 * for a source older than 6.0 uses them instead of UUIDs.
 */
export function sameMembers(one: WholeCollection[], other: WholeCollection[]): boolean {
  const isSame = (member: WholeCollection, { uuid, database, name }: WholeCollection): boolean =>
    member.uuid === uuid && member.database === database && member.name === name
  return one.length === other.length && one.every((member) => other.some((candidate) => isSame(candidate, member)))
}
