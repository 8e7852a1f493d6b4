import type { RefusalName } from './errors.ts'

/** Names of what refuses nothing. */
export const adviceNames = [
  'DefinitionsFrozen',
  'KnownServerFault',
  'InconsistentIndex',
  'DuplicateDocumentId',
  'DuplicateIdsNotChecked',
  'LittleDiskSpace',
  'ShortOplogWindow',
  'ClockSkew',
  'UnencryptedConnection',
  'UnverifiedConnection',
] as const

/** What a check before a start found: an error refuses the start, a warning or an info does not. */
export interface Finding {
  severity: 'error' | 'warning' | 'info'
  /** Of an error: the name that start is refused with. */
  name: RefusalName | (typeof adviceNames)[number]
  /** database.collection, where it is about one. */
  namespace?: string
  message: string
  remedy: string
}
