import { type Catalogue, type CatalogueEntry, needsOneLane } from '../domain/catalogue.ts'
import type { WholeCollection } from '../mongo/change-stream.ts'

/**
 * Collections that belong to partition 0 as a whole, because of their document order or the collation of their `_id`s.
 */
export function wholeCollections(catalogue: Catalogue): WholeCollection[] {
  return catalogue.entries().flatMap((entry) => (needsOneLane(entry) ? [at(entry)] : []))
}

function at({ uuid, database, sourceName: name }: CatalogueEntry): WholeCollection {
  return { uuid, database, name }
}

export function sameMembers(one: WholeCollection[], other: WholeCollection[]): boolean {
  return one.length === other.length && one.every(({ uuid }) => other.some((member) => member.uuid === uuid))
}
