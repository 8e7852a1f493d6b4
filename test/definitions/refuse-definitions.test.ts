import { expect, it } from 'vitest'
import type { ListedCollection } from '../../src/definitions/listing.ts'
import { refuseUnsupported } from '../../src/definitions/refuse-definitions.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'

/** Tests collections that tandem cannot sync, in the forms in which listCollections of different releases returns them. */

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
])('%s is refused, and the refusal names the collection', (_what, one, reason) => {
  expect(() => refuseUnsupported('app', [one])).toThrow(reason)
  expect(() => refuseUnsupported('app', [one])).toThrow(/^app\.things /)
})

it('collections are not refused because of the options that 7.0 and 8.0 have added', () => {
  const options: RawField[] = [
    ['validationAction', 'errorAndLog'],
    ['changeStreamPreAndPostImages', nested([['enabled', true]])],
  ]
  expect(() => refuseUnsupported('app', [listed({}, options)])).not.toThrow()
})
