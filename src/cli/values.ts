import { InvalidArgumentError } from 'commander'
import { syncNamePattern } from '../domain/namespace.ts'
import { parseShardNames, type ShardNamePairs } from '../domain/shard-names.ts'

/** Parsers of values that several options share. Each throws InvalidArgumentError with a sentence for the operator. */

export function integerBetween(lowest: number, highest: number) {
  return (text: string): number => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (value >= lowest && value <= highest) return value
    throw new InvalidArgumentError(`It must be an integer from ${lowest} to ${highest}.`)
  }
}

/** Longer than any host name (253), because an instance may be named after its host. */
const instanceIdMax = 256

/**
 * An instance's id. It appears in keys, in the comments of MongoDB commands, in log lines and on the dashboard, so it
 * may contain only letters, digits and a few punctuation marks.
 */
export function instanceId(text: string): string {
  nonEmpty(text)
  if (text.length > instanceIdMax) throw new InvalidArgumentError(`It must have at most ${instanceIdMax} characters.`)
  if (!/^[A-Za-z0-9][A-Za-z0-9._:@+/-]*$/.test(text)) {
    throw new InvalidArgumentError(
      'It must begin with a letter or digit. Apart from letters and digits, only . _ : @ + / - are allowed.',
    )
  }
  return text
}

/** The name of a sync becomes a part of the name of its metadata database. */
export function syncName(text: string): string {
  if (syncNamePattern.test(text)) return text
  throw new InvalidArgumentError('It must have 1 to 20 characters: letters, digits, - and _.')
}

/** Shards with different names on the two clusters, such as `rs0=shardA,rs1=shardB`. */
export function shardNames(text: string): ShardNamePairs {
  const parsed = parseShardNames(text)
  if (typeof parsed !== 'string') return parsed
  throw new InvalidArgumentError(`It must list pairs such as rs0=shardA,rs1=shardB: ${parsed}.`)
}

export function nonEmpty(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('It must not be empty.')
  return text
}
