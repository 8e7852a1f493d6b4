import type { CommitRequest } from './commit-request.ts'
import type { RefusalName } from './errors.ts'
import type { FilterRequest } from './filter-request.ts'

/** The commands that one instance can send to all instances. Only commit and filter have a body. */
export const peerCommands = ['pause', 'resume', 'commit', 'abort', 'reverse', 'filter'] as const
export type PeerCommand = (typeof peerCommands)[number]

/** A command to all instances. `request` is set for a commit, and `filter` for a filter. */
export interface GivenCommand {
  command: PeerCommand
  request?: CommitRequest
  filter?: FilterRequest
  /**
   * Set for an abort, to identify the commit that it concerns: the number of commits that had been aborted before that
   * commit. Null if no commit was in progress when the abort was sent. An earlier release does not set it.
   */
  abortsBefore?: number | null
}

/** The answer of an instance to a command that was sent to it. */
export type PeerAnswer = { success: true } | { success: false; error: RefusalName; errorDescription: string }

/** The answers by mongosyncID, in ascending order of the ids. */
export type PeerAnswers = ReadonlyMap<string, PeerAnswer>
