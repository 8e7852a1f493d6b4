import { expect, it } from 'vitest'
import type { ListedCollection } from '../../src/definitions/listing.ts'
import { refuseUnsupported } from '../../src/definitions/refuse-definitions.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'

/** Collections that tandem cannot sync, as listCollections of the different releases shows them. */

const uuid = 'sixteen bytes...'
const timeField = nested([['timeField', 't']])

const listed = (fields: Partial<ListedCollection>, options: RawField[]): ListedCollection => ({
  name: 'things',
  type: 'collection',
  uuid,
  options: readFields(rawDocument(options)),
  ...fields,
})

it.each([
  ['a time series', listed({ type: 'timeseries', uuid: '' }, [['timeseries', timeField]]), /time-series/],
  ['its buckets', listed({ name: 'system.buckets.things' }, [['timeseries', timeField]]), /time-series/],
  ['a time series of 8.3 without buckets', listed({ type: 'timeseries' }, [['timeseries', timeField]]), /time-series/],
  ['a collection with Queryable Encryption', listed({}, [['encryptedFields', nested([])]]), /Queryable Encryption/],
])('%s is refused by its name', (_what, one, reason) => {
  expect(() => refuseUnsupported('app', [one])).toThrow(reason)
  expect(() => refuseUnsupported('app', [one])).toThrow(/^app\.things /)
})

it('the options that 7.0 and 8.0 add to other collections are no reason to refuse them', () => {
  const options: RawField[] = [
    ['validationAction', 'errorAndLog'],
    ['changeStreamPreAndPostImages', nested([['enabled', true]])],
  ]
  expect(() => refuseUnsupported('app', [listed({}, options)])).not.toThrow()
})
