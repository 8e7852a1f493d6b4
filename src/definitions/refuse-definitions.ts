import type { ChangeEvent } from '../domain/change-event.ts'
import { type IndexSpecification, traitsOf } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import { decidingName, isConversion } from '../domain/namespace-filter.ts'
import { notLost } from '../domain/not-lost.ts'
import { fieldNamed, isTruthy } from '../domain/raw-bson.ts'
import type { ListedCollection } from './listing.ts'

/** Throws FatalError when there is a TTL index: with buildIndexes "never" it does not exist on the destination. */
export function refuseExpiry(database: string, name: string, indexes: IndexSpecification[]): void {
  if (!indexes.some((index) => traitsOf(index).expireAfterSeconds !== undefined)) return
  throw new FatalError(
    'VerificationNotSupported',
    `${namespace(database, name)} has a TTL index, which cannot be verified with buildIndexes "never": documents would expire ` +
      'on the source only. Drop that index and, if the sync was running, send resume. Or start over with "beforeDataCopy" or with ' +
      `"verification": {"enabled": false}. ${notLost.atStartOrLater}`,
  )
}

/**
 * Throws FatalError for collections that tandem cannot sync. Checked at start and whenever a collection appears later.
 */
export function refuseUnsupported(database: string, listed: ListedCollection[]): void {
  for (const { name, type, options } of listed) {
    if (type === 'timeseries' || name.startsWith('system.buckets.')) {
      const plain = name.replace(/^system\.buckets\./, '')
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, plain)} is a time-series collection, which tandem cannot sync because change streams do not report its changes. Drop it on the source or exclude it by a filter at start; if the sync was running, then send resume. ${notLost.atStartOrLater}`,
      )
    }
    if (fieldNamed(options, 'encryptedFields')) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} uses Queryable Encryption, which tandem cannot copy. Drop it on the source or exclude it by a filter at start; if the sync was running, then send resume. ${notLost.atStartOrLater}`,
      )
    }
    if (isConversion(name) && isTruthy(fieldNamed(options, 'capped'))) {
      throw unsupportedConversion(database, name)
    }
  }
}

/** convertToCapped writes the converted collection without change events. */
export function unsupportedConversion(database: string, name: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `convertToCapped of ${namespace(database, decidingName(name))} cannot be followed: the server ` +
      `writes the converted collection without change events. Start over with an emptied destination. ${notLost.source}`,
  )
}

/** The error for an event whose kind this release does not know, so that its change cannot be followed. */
export function unknownKind({ operationType, database, collection }: ChangeEvent): FatalError {
  const where = collection === '' ? database : namespace(database, collection)
  return new FatalError(
    'UnsupportedChange',
    `the source's change stream has an event of an unknown kind, ${JSON.stringify(operationType)}` +
      `${where === '' ? '' : ` on ${where}`}. tandem cannot follow what it changed, so the sync stops before it. Use a release of ` +
      `tandem that knows this kind and send resume, or start over with an emptied destination. ${notLost.source}`,
  )
}
