import type { AuditEntry } from './audit-entry.ts'
import type { InitialCompareMethod } from './compare-method.ts'
import type { ErrorDetails } from './error-details.ts'
import type { PeerCommand } from './peer-command.ts'

/**
 * The log messages of an instance and its sync, with the fields of each. docs/logs.md lists them for operators, whose
 * alerts depend on the messages and the field names.
 */
export interface JournalFields {
  listening: { bind: string; port: number; tls: boolean; token: boolean; version: string }
  'cannot listen': { error: string }
  connected: { versions: string[]; resumed: boolean }
  'waiting for cluster': { cluster: string; error: string }
  'the instance cannot start': ErrorDetails & { error: string; errorDescription: string; stack?: string }
  state: { state: string; value: unknown }
  sync: { state: string }
  failed: ErrorDetails & {
    error: string
    errorDescription: string
    /** The state in which the failure occurred, as docs/states.md names it. */
    during: string
    /** The state of the whole sync at that moment, if this instance followed it. */
    sync?: string
    /** The step that was being retried at that moment. */
    retrying?: string
    stack?: string
  }
  /** `state`: the public state, which the failure does not change. */
  'failure ignored': ErrorDetails & { error: string; errorDescription: string; state: string }
  progress: Record<string, unknown>
  retrying: { what: string; error: string }
  'retry ended': { what: string; attempts: number; seconds: number }
  'lease taken': { lease: string; epoch: number; seconds: number }
  'lease lost': { lease: string; epoch: number; reason: string }
  'lease given back': { lease: string; epoch: number }
  /** `coordinatorID` is null after the coordinator gave up the role. */
  coordinator: { coordinatorID: string | null; term: number; isThisInstance: boolean }
  'instance evicted': { instance: string; epoch: number; seconds: number }
  /** `from`: the evicted instances that owned some of these partitions; empty if there are none. */
  'partitions claimed': { partitions: number[]; from: string[] }
  'partitions given back': { partitions: number[] }
  'definitions followed': { databases: string[]; seconds: number }
  'barrier reached': { clusterTime: string; databases: string[]; partitions: number[] }
  'barrier led': { clusterTime: string; databases: string[]; seconds: number }
  'barrier passed': { clusterTime: string; seconds: number }
  /** `fate`: why the namespace was dropped; docs/logs.md lists the values. */
  'existing namespace dropped': { namespace: string; fate: string }
  'convergence requested': { all: boolean }
  'filter changed': { dropExcluded: boolean }
  'namespace excluded': { namespace: string; dropped: boolean }
  'metadata indexes not created': { error: string }
  'options not restored': { namespace: string; error: string }
  /** `indexes`: the names of the source's indexes that an excluded collection does not have. */
  'indexes not built': { namespace: string; indexes: string[] }
  'uneven distribution': { namespace: string; error: string }
  /** The destination does not record the shard key as unique, although the source does or the start request asks for it. */
  'shard key not unique': { namespace: string }
  'zone not copied': { what: string; error: string }
  'balancing not copied': { namespace: string; error: string }
  /** `instead`: how documents of this collection are read until its chunks are read. */
  'chunks not read': { namespace: string; error: string; instead: string }
  /**
   * `all`: true if all collections converge (are compared with the source again) from a new start time; false if the
   * requested collections converge, and the stored positions stay.
   */
  'convergence planned': { collections: number; all: boolean }
  /** Logged for a collection that is to be copied in natural order or has random `_id`s. `order`: the order of the read. */
  'copy order': { namespace: string; order: 'natural' | '_id'; reason: string }
  /** `bytes`: the number of bytes that were already copied and are read again. */
  'copy begins again': { namespace: string; bytes: number }
  'collection copied': { namespace: string; bytes: number; partitions: number }
  /** Logged when `buildIndexes` delays the indexes until the collection is copied. */
  'indexes built': { namespace: string; indexes: number; seconds: number }
  'copy ended': { collections: number; seconds: number }
  'verification began': Record<never, never>
  'verification begins again': { error: string }
  /** Logged once for each collection in a first verification that compares hashes instead of documents. */
  'hashes not read': { namespace: string; error: string }
  'verification pass ended': {
    documents: number
    collections: number
    seconds: number
    compareMethod: InitialCompareMethod
  }
  'verdict pass': { pass: number; differences: number }
  verdict: { differences: number }
  'commit step': { step: string }
  /** `step`: the coordinator's step, as docs/states.md names it. */
  'rehearsal failed': ErrorDetails & { error: string; errorDescription: string; step: string; stack?: string }
  /** `received`: when the command was received. */
  audit: Omit<AuditEntry, 'time' | 'mongosyncID'> & { received: string }
  'audit not stored': { error: string }
  'request failed': { error: string }
  /** `command` is null if this release does not know the command. */
  'command failed': { command: PeerCommand | null; error: string }
  notice: { notice: string }
  'insecure connection': { problem: string; remedy: string }
  'tokens refused': { remoteAddress: string | null; attempts: number; failuresPerMinuteMax: number }
  'connections refused': { connections: number; connectionsMax: number; remoteAddress: string | null }
  'tokens read again': Record<never, never>
  'tokens not read again': { error: string }
  'log reopened': Record<never, never>
  'log rotated': Record<never, never>
  'log lines lost': { lines: number }
  stopping: Record<never, never>
  /**
   * The messages and fields from here on are mongosync's, for tools that read its log. docs/logs.md names one of them.
   */
  'Version info': { version: string; os: string; arch: string }
  /** The options of this instance, without secrets. */
  'Mongosync Options': Record<string, unknown>
  /** `body` is present for `start` only, and only after it was accepted as valid. */
  'Received request': { method: string; uri: string; body?: string }
  'sent response': { method: string; uri: string; status?: number; body: string }
  'Starting initializing collections and indexes phase': Record<never, never>
  'Starting initializing partitions phase': Record<never, never>
  'Starting collection copy phase': Record<never, never>
  'Starting change event application phase': Record<never, never>
  'Commit handler called': Record<never, never>
  'Replication progress': Record<string, unknown>
  'Operation duration stats': Record<string, unknown>
  'Average Source CRUD events rate': { srcCRUDEventsPerSec: number }
  /** `N` and `M` stand for `written` and `total`. */
  'Completed writing N / M partitions to destination cluster': { written: number; total: number }
}

export type JournalMessage = keyof JournalFields
export type JournalLevel = 'debug' | 'info' | 'warn' | 'error' | 'fatal'

export const journalLevels: { readonly [Message in JournalMessage]: JournalLevel } = {
  listening: 'info',
  'cannot listen': 'fatal',
  connected: 'info',
  'waiting for cluster': 'warn',
  'the instance cannot start': 'fatal',
  state: 'info',
  sync: 'info',
  failed: 'error',
  progress: 'info',
  retrying: 'warn',
  'retry ended': 'info',
  'lease taken': 'info',
  'lease lost': 'warn',
  'lease given back': 'info',
  coordinator: 'info',
  'instance evicted': 'warn',
  'partitions claimed': 'info',
  'partitions given back': 'info',
  'definitions followed': 'info',
  'barrier reached': 'info',
  'barrier led': 'info',
  'barrier passed': 'info',
  'existing namespace dropped': 'warn',
  'convergence requested': 'warn',
  'filter changed': 'info',
  'namespace excluded': 'info',
  'metadata indexes not created': 'warn',
  'options not restored': 'warn',
  'indexes not built': 'warn',
  'uneven distribution': 'warn',
  'shard key not unique': 'warn',
  'zone not copied': 'warn',
  'balancing not copied': 'warn',
  'chunks not read': 'warn',
  'convergence planned': 'info',
  'copy order': 'info',
  'copy begins again': 'warn',
  'collection copied': 'info',
  'indexes built': 'info',
  'copy ended': 'info',
  'verification began': 'info',
  'verification begins again': 'warn',
  'hashes not read': 'warn',
  'verification pass ended': 'info',
  'verdict pass': 'info',
  verdict: 'info',
  'commit step': 'info',
  'rehearsal failed': 'error',
  'failure ignored': 'error',
  audit: 'info',
  'audit not stored': 'warn',
  'request failed': 'error',
  'command failed': 'error',
  notice: 'warn',
  'insecure connection': 'warn',
  'tokens refused': 'warn',
  'connections refused': 'warn',
  'tokens read again': 'info',
  'tokens not read again': 'error',
  'log reopened': 'info',
  'log rotated': 'info',
  'log lines lost': 'warn',
  stopping: 'info',
  'Version info': 'info',
  'Mongosync Options': 'info',
  'Received request': 'info',
  'sent response': 'info',
  'Starting initializing collections and indexes phase': 'info',
  'Starting initializing partitions phase': 'info',
  'Starting collection copy phase': 'info',
  'Starting change event application phase': 'info',
  'Commit handler called': 'info',
  'Replication progress': 'info',
  'Operation duration stats': 'info',
  'Average Source CRUD events rate': 'info',
  'Completed writing N / M partitions to destination cluster': 'info',
}

/** Messages that are written at every verbosity, because the record of commands must not depend on the verbosity. */
export const alwaysWritten: ReadonlySet<JournalMessage> = new Set(['audit'])

/** Returns the text of a message. One of mongosync's messages contains two numbers. */
export function textOf<Message extends JournalMessage>(message: Message, fields: JournalFields[Message]): string {
  if (!message.includes(' N / M ')) return message
  const { written, total } = fields as { written: number; total: number }
  return message.replace(' N / M ', ` ${written} / ${total} `)
}

/** Writes one log line. Never throws. Blocks for at most 100 ms if the log is a pipe whose reader is too slow. */
export type Journal = <Message extends JournalMessage>(message: Message, fields: JournalFields[Message]) => void
