import type { RefusalName } from './errors.ts'

/** Names of findings that do not refuse a start. */
export const adviceNames = [
  'BalancerSettingsNotCopied',
  'DefinitionsFrozen',
  'KnownServerFault',
  'UntestedRelease',
  'InconsistentIndex',
  'ShardDraining',
  'ShardNotReadable',
  'ZonesNotCopied',
  'DuplicateDocumentId',
  'DuplicateIdsNotChecked',
  'LittleDiskSpace',
  'ShortOplogWindow',
  'ClockSkew',
  'ExistingData',
  'HashedVerification',
  'TimeSeriesSkipped',
  'UnencryptedConnection',
  'UnverifiedConnection',
] as const

/** The result of a check before a start. An error refuses the start; a warning or an info does not. */
export interface Finding {
  severity: 'error' | 'warning' | 'info'
  /** For an error: the error name in the refusal of the start. */
  name: RefusalName | (typeof adviceNames)[number]
  /** database.collection, if the finding concerns a collection. */
  namespace?: string
  message: string
  remedy: string
}

/** Checks that are skipped. */
export interface CheckOptions {
  skipDiskSpaceCheck: boolean
}
