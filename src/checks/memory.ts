import os from 'node:os'
import process from 'node:process'
import { RefusedError } from '../domain/errors.ts'

const mebibyte = 1024 * 1024
/**
 * Memory for open rechecks, for the ranges that are compared at a time (`readAhead`), and for the driver's buffers
 * (docs/architecture.md, Verification).
 */
const verifierBytes = 256 * mebibyte

/** Returns how many bytes this process may still allocate, within the limit of its container if there is one. */
export function availableMemory(): number {
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY
  return Math.min(os.freemem(), Math.max(0, limit - process.memoryUsage().rss))
}

/**
 * Refuses to start if `available` bytes are not enough for the verifier.
 * @throws RefusedError InsufficientMemory
 */
export function refuseLittleMemory(available: number): void {
  if (available >= verifierBytes) return
  throw new RefusedError(
    'InsufficientMemory',
    `verification takes up to ${verifierBytes / mebibyte} MiB of memory, and ${Math.floor(available / mebibyte)} MiB are available; give ` +
      'tandem more, or send "verification": {"enabled": false}',
  )
}
