import type { StartConfiguration } from '../../src/domain/start-request.ts'
import type { SyncRecord } from '../../src/mongo/metadata.ts'
import { olderContext } from '../older/stages-of-0.1.ts'

/** A configuration as a record stores it. */
export const storedConfiguration: StartConfiguration = {
  ...olderContext.configuration,
  ...{
    verification: { enabled: true, initialCompareMethod: 'binary' },
    existingData: 'refuse',
    timeseries: 'refuse',
    copyInNaturalOrder: null,
    detectRandomId: true,
    namespaceRemap: null,
  },
}

/** The record of a sync between two clusters whose identities are `zero` and `one`. */
export const storedRecord: SyncRecord = {
  configuration: storedConfiguration,
  sourceIdentity: 'zero',
  destinationIdentity: 'one',
  startTime: 7n,
  partitions: 16,
  redis: false,
  generation: 0,
}
