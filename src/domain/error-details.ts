import { circumstancesOf } from './circumstances.ts'
import { errorText } from './error-text.ts'
import { FatalError, RefusedError, StoppedError } from './errors.ts'
import { codeNameOf } from './server-code.ts'
import { redactUris } from './uri-rules.ts'

/**
 * What an answer says about an error beside its name and description. It is derived when a request is answered and is
 * not stored, so after a restart only `lost` and `docs` remain of the details of a failure.
 */
export interface ErrorDetails {
  /** cluster0 or cluster1. */
  cluster?: string
  /** The server's name of the error code. */
  codeName?: string
  /** The last error of the driver or the server, without document values. */
  lastError?: string
  lost?: 'nothing'
  /** File of the package, and its heading. */
  docs: string
}

/** Causes of causes that are read; there are rarely more than two. */
const causesMax = 5

/** @param error the error that was refused or failed with; undefined if it is not known */
export function errorDetails(name: string, error?: unknown): ErrorDetails {
  const chain = chainOf(error)
  const cluster = chain.map((one) => circumstancesOf(one).cluster).find((known) => known !== undefined)
  const origin = chain.find((one) => !isOwn(one) && (circumstancesOf(one).cluster !== undefined || isReply(one)))
  const codeName = isReply(origin) ? codeNameOf(origin.code, origin.codeName) : undefined
  return {
    ...(cluster !== undefined && { cluster }),
    ...(codeName !== undefined && { codeName }),
    ...(origin !== undefined && { lastError: redactUris(errorText(origin)) }),
    // After an error that tandem does not know, it cannot say what is lost.
    ...(name !== 'InternalError' && { lost: 'nothing' as const }),
    docs: docsOf(name),
  }
}

/** The entry of an error name. */
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

/** tandem's own errors, whose text is the description of the answer. */
function isOwn(error: unknown): boolean {
  return error instanceof RefusedError || error instanceof FatalError || error instanceof StoppedError
}

function isReply(error: unknown): error is { code: number; codeName?: unknown } {
  return typeof (error as { code?: unknown } | undefined)?.code === 'number'
}
