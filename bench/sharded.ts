import type { Measured } from './report.ts'
import { benchShardedBurst } from './sharded-burst.ts'
import { benchShardedCommands } from './sharded-commands.ts'
import { benchShardedCopy } from './sharded-copy.ts'
import type { BenchOptions } from './tandem-run.ts'

/** The section `sharded`: both clusters are sharded by a key that is not `_id`. */
export function shardedCases(
  options: BenchOptions,
): { section: 'sharded'; name: string; run: () => Promise<Measured> }[] {
  const cases: [string, () => Promise<Measured>][] = [
    ['commands, ranged key', () => benchShardedCommands(options, { k: 1 })],
    ['commands, hashed key', () => benchShardedCommands(options, { k: 'hashed' })],
    ['copy', () => benchShardedCopy(options)],
    ['burst', () => benchShardedBurst(options)],
  ]
  return cases.map(([name, run]) => ({ section: 'sharded', name, run }))
}
