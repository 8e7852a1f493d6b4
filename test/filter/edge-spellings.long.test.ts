import { test } from 'vitest'
import { filteredPair, spellings } from './edge.ts'

/** Tests changes at the edge of a filter with every spelling of the filter. edge.cluster.test.ts runs some of them. */

const edge = filteredPair()

test.each(spellings)(
  'filter written as %s: changes in selected namespaces are applied, and all other namespaces stay unchanged',
  (_how, startFilter) => edge.expectChangesFollowed(startFilter),
)

test.each(spellings)(
  'filter written as %s: when a database is dropped, the destination drops its selected collections, and no others',
  (_how, startFilter) => edge.expectDropFollowed(startFilter),
)

test.each(edge.crossings)('filter written as $filter.0: $what is applied while a client writes', (crossing) =>
  edge.expectCrossingFollowed(crossing),
)
