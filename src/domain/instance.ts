import type { AuditEntry, CommandCall, ReceivedCommand } from './audit-entry.ts'
import type { CollectionsPage, CollectionsReport } from './collection-figures.ts'
import type { CommitRequest } from './commit-request.ts'
import type { FilterRequest } from './filter-request.ts'
import type { CheckOptions, Finding } from './finding.ts'
import type { InstancesReport } from './instances.ts'
import type { Limits, LimitsReport } from './limits.ts'
import type { Mismatch } from './mismatch.ts'
import type { NamespaceName } from './namespace.ts'
import type { GivenCommand, PeerAnswers } from './peer-command.ts'
import type { Progress } from './progress.ts'
import type { StartConfiguration } from './start-request.ts'

export interface RepairReport {
  /** Number of documents that were reconciled. */
  repairedDocuments: number
  /**
   * Number of collections that are converged (compared with the source again, so that what differs is written), because
   * the repair could not make them equal or the verdict has too many differences. If there are any, the commit was
   * aborted.
   */
  convergingCollections: number
}

/**
 * The interface between the API and a sync instance. A command resolves when it is accepted and stored durably. If it
 * is refused, it rejects with RefusedError. `progress` never uses the network.
 */
export interface Instance {
  progress(): Progress
  /** All instances of the sync that this instance knows, including itself. */
  instances(): Promise<InstancesReport>
  /**
   * The collections of the whole sync, with the work of all instances: first those with mismatches, then those with the
   * most work left.
   */
  collections(page: CollectionsPage): Promise<CollectionsReport>
  /** The limits on bulk work that apply now. */
  limits(): LimitsReport
  /**
   * Changes the given limits of this instance only, in any state. They survive a restart while there is a sync, but not
   * after COMMITTED. Resolves with the limits in force.
   */
  limit(limits: Partial<Limits>): Promise<LimitsReport>
  /** Resolves with warnings about the options of this start. */
  start(configuration: StartConfiguration): Promise<string[]>
  /** Finds everything that would refuse this start, and reports warnings about it. */
  check(configuration: StartConfiguration, options: CheckOptions): Promise<Finding[]>
  pause(): Promise<void>
  resume(): Promise<void>
  /** Refused unless `canCommit` is true. The refusal says why it is false. */
  commit(request: CommitRequest): Promise<void>
  /** Aborts a commit in progress, on all instances. Refused once the commit is decided. */
  abort(): Promise<void>
  reverse(): Promise<void>
  /** Sends the command to every live instance; resolves with the answer of each, including this one. */
  sendToAll(given: GivenCommand): Promise<PeerAnswers>
  /** The audit trail of commands, newest first. */
  audit(): Promise<AuditEntry[]>
  /** Records a command before it runs. Resolves when the record is stored, after one second at most; never rejects. */
  commandReceived(call: ReceivedCommand): Promise<void>
  /**
   * Records the outcome of a command. Never throws.
   * @param admitted false if the API refused the command because of its Host, Origin or token
   */
  commandAnswered(call: CommandCall, admitted: boolean): void
  /** The differences in the last verdict: the first thousand, and the total number. */
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }>
  /**
   * Makes the documents that the verdict names equal to those of the source. Where this is not possible, or if there
   * are too many differences (`repairedMax`), aborts the commit and converges their collections.
   */
  repair(): Promise<RepairReport>
  /** Makes all instances compare these collections with the source again and write the differences. */
  resync(namespaces: readonly NamespaceName[]): Promise<void>
  /** Replaces the filters of the sync, for all instances. */
  filter(request: FilterRequest): Promise<void>
}
