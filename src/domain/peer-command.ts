import type { RefusalName } from './errors.ts'

/** The commands that one instance can pass on to all. Only commit has a body. */
export const teamCommands = ['pause', 'resume', 'commit', 'abort', 'reverse'] as const
export type PeerCommand = (typeof teamCommands)[number]

/** What an instance answered to a command that was passed on to it. */
export type TeamAnswer = { success: true } | { success: false; error: RefusalName; errorDescription: string }

/** By mongosyncID, in the order of the ids. */
export type PeerAnswers = ReadonlyMap<string, TeamAnswer>
