import type { ExistingDefinitions } from '../definitions/deferred-options.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import {
  type CollectionDefinition,
  collectionExpiry,
  deferredOptionsOf,
  hasMaximum,
  type IndexSpecification,
  indexName,
  isCapped,
  sameNumber,
} from '../domain/definition.ts'
import { namespace } from '../domain/namespace.ts'
import { type NamespaceRemap, noRemap } from '../domain/namespace-remap.ts'
import { fieldNamed, numberOf, type TypedValue } from '../domain/raw-bson.ts'

/**
 * Lists the options that a sync has deferred on the destination and has not restored, and the indexes that it has not
 * built: one line for each index and each collection option, sorted. Dropped collections are left out.
 */
export function deferredLeft(
  entries: readonly CatalogEntry[],
  existing: ExistingDefinitions,
  names: NamespaceRemap = noRemap,
): string[] {
  return entries
    .flatMap((entry) => {
      const found = existing.get(entry.destinationUUID ?? '')
      if (!found) return []
      const name = names.shown(namespace(entry.database, entry.name))
      return ofCollection(entry, found).map((what) => `${name}: ${what}`)
    })
    .sort()
}

function ofCollection({ wanted }: CatalogEntry, { options, indexes }: CollectionDefinition): string[] {
  const existing = new Map(indexes.map((one) => [indexName(one), one]))
  return [
    ...(isCapped(wanted.options) ? ofCapped(wanted.options, options) : []),
    ...expiry(collectionExpiry(wanted.options), collectionExpiry(options)),
    ...wanted.indexes.flatMap((one) => {
      const what = ofIndex(one, existing.get(indexName(one)))
      return what.length === 0 ? [] : [`index ${indexName(one)}: ${what.join(', ')}`]
    }),
  ]
}

function ofCapped(wanted: CollectionDefinition['options'], options: CollectionDefinition['options']): string[] {
  const [size, max] = [fieldNamed(wanted, 'size'), fieldNamed(wanted, 'max')]
  return [
    ...(size && !sameNumber(size, fieldNamed(options, 'size')) ? [`size ${numberOf(size)}`] : []),
    ...(hasMaximum(max) && !sameNumber(max, fieldNamed(options, 'max')) ? [`max ${numberOf(max)}`] : []),
  ]
}

function ofIndex(wanted: IndexSpecification, existing: IndexSpecification | undefined): string[] {
  if (!existing) return ['not built']
  const [want, have] = [deferredOptionsOf(wanted), deferredOptionsOf(existing)]
  return [
    ...(want.unique && !have.unique ? ['unique'] : []),
    ...(want.prepareUnique && !have.prepareUnique && !have.unique ? ['prepareUnique'] : []),
    ...expiry(want.expireAfterSeconds, have.expireAfterSeconds),
    ...(want.hidden && !have.hidden ? ['hidden'] : []),
  ]
}

function expiry(wanted: TypedValue | undefined, existing: TypedValue | undefined): string[] {
  return wanted && !sameNumber(wanted, existing) ? [`expireAfterSeconds ${numberOf(wanted)}`] : []
}
