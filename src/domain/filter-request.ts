import type { NamespaceFilters } from './namespace-filter.ts'
import type { StartConfiguration } from './start-request.ts'

/** The body of `POST /api/v1/filter` after validation. It replaces both current filters. */
export interface FilterRequest extends NamespaceFilters {
  /** True: collections that the filter newly excludes are dropped on the destination. False: they stay there. */
  dropExcluded: boolean
}

/** A change of the filters for which no plan is complete. The stored catalog may still be based on the former filters. */
export interface FilterChange {
  /**
   * The filters on which the content of the destination may be based, oldest first: those that were in force when
   * collections were last planned, and those for which a plan has begun since. Filters that were replaced before their
   * plan began are not included.
   */
  before: NamespaceFilters[]
  /** `dropExcluded` of the last filter request. */
  dropExcluded: boolean
  /**
   * True once the coordinator may have changed something for the filters in force. An earlier release did not store
   * this, which counts as true.
   */
  begun?: boolean
}

/**
 * Returns the filters in force.
 * @param changed the filters that replaced those of the start request; null if they were never replaced
 */
export function currentFilters(
  { includeNamespaces, excludeNamespaces }: StartConfiguration,
  changed: NamespaceFilters | null,
): NamespaceFilters {
  return changed ?? { includeNamespaces, excludeNamespaces }
}

/** True if the filters have the same text. Different texts may select the same namespaces. */
export function sameFilters(one: NamespaceFilters, other: NamespaceFilters): boolean {
  const text = ({ includeNamespaces, excludeNamespaces }: NamespaceFilters): string =>
    JSON.stringify([includeNamespaces, excludeNamespaces])
  return text(one) === text(other)
}
