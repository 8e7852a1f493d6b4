import { circumstancesOf } from './circumstances.ts'
import { errorText } from './error-text.ts'
import { FatalError, RefusedError, StoppedError } from './errors.ts'
import { codeNameOf } from './server-code.ts'
import { redactUris } from './uri-rules.ts'

/**
 * The fields that an answer adds to the name and the description of an error. They are derived when a request is
 * answered and are not stored, so after a restart a failure has at most `lost` and `docs`.
 */
export interface ErrorDetails {
  /** cluster0 or cluster1. */
  cluster?: string
  /** The server's name of the error code. */
  codeName?: string
  /** The last error of the driver or the server, without document values. */
  lastError?: string
  /** Absent if tandem does not know whether the error has lost anything. */
  lost?: 'nothing'
  /** The location of the documentation of this error: a path in the package, with the anchor of the heading. */
  docs: string
}

/** The maximum number of errors that are read from a chain of causes. A chain rarely has more than two. */
const causesMax = 5

/** @param error the error that refused a command or ended the sync; undefined if it is not known */
export function errorDetails(name: string, error?: unknown): ErrorDetails {
  const chain = chainOf(error)
  const cluster = chain.map((one) => circumstancesOf(one).cluster).find((known) => known !== undefined)
  const origin = chain.find((one) => !isOwn(one) && (circumstancesOf(one).cluster !== undefined || isReply(one)))
  const codeName = isReply(origin) ? codeNameOf(origin.code, origin.codeName) : undefined
  return {
    ...(cluster !== undefined && { cluster }),
    ...(codeName !== undefined && { codeName }),
    ...(origin !== undefined && { lastError: redactUris(errorText(origin)) }),
    // tandem cannot tell whether an unexpected error has lost anything.
    ...(name !== 'InternalError' && { lost: 'nothing' as const }),
    docs: docsOf(name),
  }
}

/** Returns the location of the troubleshooting entry for an error name. */
export function docsOf(name: string): string {
  return `docs/troubleshooting.md#${name.toLowerCase()}`
}

function chainOf(error: unknown): unknown[] {
  const chain: unknown[] = []
  for (let one = error; one !== undefined && one !== null && chain.length < causesMax; ) {
    chain.push(one)
    one = one instanceof Error ? one.cause : undefined
  }
  return chain
}

/** True for tandem's own errors. Their text is the description in the answer. */
function isOwn(error: unknown): boolean {
  return error instanceof RefusedError || error instanceof FatalError || error instanceof StoppedError
}

function isReply(error: unknown): error is { code: number; codeName?: unknown } {
  return typeof (error as { code?: unknown } | undefined)?.code === 'number'
}
