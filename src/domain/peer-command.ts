import type { RefusalName } from './errors.ts'

/** The commands that one instance can send to all instances. Only commit has a body. */
export const peerCommands = ['pause', 'resume', 'commit', 'abort', 'reverse'] as const
export type PeerCommand = (typeof peerCommands)[number]

/** The answer of an instance to a command that was sent to it. */
export type PeerAnswer = { success: true } | { success: false; error: RefusalName; errorDescription: string }

/** Answers by mongosyncID, in the order of the ids. */
export type PeerAnswers = ReadonlyMap<string, PeerAnswer>
