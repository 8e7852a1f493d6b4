import { test } from 'vitest'
import { filteredPair, spellings } from './edge.ts'

/** Changes at a filter's edge, with every spelling of the filter. edge.cluster.test.ts tests some of these. */

const edge = filteredPair()

test.each(spellings)(
  'filter written as %s: changes of selected names are followed, and everything else stays unchanged',
  (_how, startFilter) => edge.expectChangesFollowed(startFilter),
)

test.each(spellings)(
  'filter written as %s: a dropped database loses its selected collections, and no others',
  (_how, startFilter) => edge.expectDropFollowed(startFilter),
)

test.each(edge.crossings)('filter written as $filter.0: $what is followed while a client writes', (crossing) =>
  edge.expectCrossingFollowed(crossing),
)
