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
  /** Number of collections for which the commit was aborted, and which are converged. */
  convergingCollections: number
}

/**
 * The interface between the API and a sync instance. Commands resolve once they are accepted and durable. They reject
 * with RefusedError if nothing was changed. `progress` never uses the network.
 */
export interface Instance {
  progress(): Progress
  /** All instances of the sync that this instance knows, including itself. */
  instances(): Promise<InstancesReport>
  /** The collections of the sync, copied by any instance. Those with the most work left come first. */
  collections(page: CollectionsPage): Promise<CollectionsReport>
  /** The limits on bulk work that apply now. */
  limits(): LimitsReport
  /** Changes the given limits; allowed in any state. They survive restarts. Resolves with the limits in force. */
  limit(limits: Partial<Limits>): Promise<LimitsReport>
  start(configuration: StartConfiguration): Promise<void>
  /** Everything that would refuse this start, and further findings about it. */
  check(configuration: StartConfiguration, options: CheckOptions): Promise<Finding[]>
  pause(): Promise<void>
  resume(): Promise<void>
  /** Refused unless `canCommit`. The refusal names what is missing. */
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
  /** Records the outcome of a command. `admitted`: the API's guards let it pass. Never throws. */
  commandAnswered(call: CommandCall, admitted: boolean): void
  /** The differences of the last verdict: the first thousand of `total`. */
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }>
  /**
   * Makes the documents that the verdict names equal to those of the source. Where this is not possible, aborts the
   * commit and converges their collections.
   */
  repair(): Promise<RepairReport>
  /** Makes all instances compare these collections with the source again and write the differences. */
  resync(namespaces: readonly NamespaceName[]): Promise<void>
  /** Replaces the filters of the sync, for all instances. */
  filter(request: FilterRequest): Promise<void>
}
