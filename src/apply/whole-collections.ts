import { type Catalog, type CatalogEntry, needsOneLane } from '../domain/catalog.ts'
import type { WholeCollection } from '../mongo/change-stream.ts'

/**
 * Collections that belong to partition 0 as a whole, because of their document order or the collation of their `_id`s.
 */
export function wholeCollections(catalog: Catalog): WholeCollection[] {
  return catalog.entries().flatMap((entry) => (needsOneLane(entry) ? [at(entry)] : []))
}

function at({ uuid, database, sourceName: name }: CatalogEntry): WholeCollection {
  return { uuid, database, name }
}

/** Compares names too, because the filter of a source older than 6.0 uses them in place of UUIDs. */
export function sameMembers(one: WholeCollection[], other: WholeCollection[]): boolean {
  const isSame = (member: WholeCollection, { uuid, database, name }: WholeCollection): boolean =>
    member.uuid === uuid && member.database === database && member.name === name
  return one.length === other.length && one.every((member) => other.some((candidate) => isSame(candidate, member)))
}
