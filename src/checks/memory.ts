import os from 'node:os'
import process from 'node:process'
import { RefusedError } from '../domain/errors.ts'

const mebibyte = 1024 * 1024
/** Open rechecks, two ranges being compared and what the driver holds of them (docs/architecture.md, Verification). */
const verifierBytes = 256 * mebibyte

/** Bytes this process may still take: of its container's limit where there is one. */
export function availableMemory(): number {
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY
  return Math.min(os.freemem(), Math.max(0, limit - process.memoryUsage().rss))
}

/** Throws RefusedError InsufficientMemory when `available` bytes are not enough for the verifier. */
export function refuseLittleMemory(available: number): void {
  if (available >= verifierBytes) return
  throw new RefusedError(
    'InsufficientMemory',
    `verification takes up to ${verifierBytes / mebibyte} MiB of memory, and ${Math.floor(available / mebibyte)} MiB are available; give ` +
      'tandem more, or send "verification": {"enabled": false}',
  )
}
