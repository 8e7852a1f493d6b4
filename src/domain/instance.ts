import type { AuditEntry, CommandCall, ReceivedCommand } from './audit-entry.ts'
import type { CollectionsPage, CollectionsReport } from './collection-figures.ts'
import type { CommitRequest } from './commit-request.ts'
import type { Finding } from './finding.ts'
import type { InstancesReport } from './instances.ts'
import type { Limits, LimitsReport } from './limits.ts'
import type { Mismatch } from './mismatch.ts'
import type { PeerAnswers, PeerCommand } from './peer-command.ts'
import type { Progress } from './progress.ts'
import type { StartConfiguration } from './start-request.ts'

/**
 * What the API knows of a sync instance. Commands resolve once they are accepted and durable, and reject with
 * RefusedError (nothing changed). `progress` never touches the network.
 */
export interface Instance {
  progress(): Progress
  /** All instances of the sync, this one among them, as far as this one knows. */
  instances(): Promise<InstancesReport>
  /** The collections of the sync, those with the most left to do first, whichever instance does it. */
  collections(page: CollectionsPage): Promise<CollectionsReport>
  /** What holds back bulk work now. */
  limits(): LimitsReport
  /** Changes some of it, in any state, and keeps it over restarts. Resolves with what is in force then. */
  limit(limits: Partial<Limits>): Promise<LimitsReport>
  start(configuration: StartConfiguration): Promise<void>
  /** Everything that would refuse that start, and what else there is to know before it. */
  check(configuration: StartConfiguration): Promise<Finding[]>
  pause(): Promise<void>
  resume(): Promise<void>
  /** Refused unless `canCommit`, and with a reason that names what is missing. */
  commit(request: CommitRequest): Promise<void>
  /** Gives up a commit that is under way, on all instances. Refused once it is decided. */
  abort(): Promise<void>
  reverse(): Promise<void>
  /** Passes the command on to every living instance; resolves with what each answered, this one among them. */
  sendToAll(command: PeerCommand, request?: CommitRequest): Promise<PeerAnswers>
  /** Who sent which command, the newest first. */
  audit(): Promise<AuditEntry[]>
  /** Writes down a command that is about to be carried out. Resolves when it is stored, within about a second at most; never rejects. */
  commandReceived(call: ReceivedCommand): Promise<void>
  /** Writes down its outcome. `admitted`: it was not kept out by the API's guards. Never throws. */
  commandAnswered(call: CommandCall, admitted: boolean): void
  /** What the last verdict found different, the first thousand of `total`. */
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }>
  /** Makes what it named equal again from the source; resolves with the number of documents looked at. */
  repair(): Promise<number>
}
