import { type Command, InvalidArgumentError } from 'commander'
import { isUserDatabase } from '../domain/namespace.ts'
import type { RehearseOptions } from '../rehearse/run-rehearse.ts'
import { addClusterOptions, readClusters } from './cluster-options.ts'

const minutesMax = 1_440
const megabytesMax = 100_000
/**
 * The server limits the name of a database to 63 bytes. A rehearsal appends a suffix of at most seven (`_probes`) to the
 * prefix.
 */
const prefixPattern = /^[A-Za-z][A-Za-z0-9_-]{0,50}$/

export function addRehearseCommand(
  program: Command,
  env: Readonly<Record<string, string | undefined>>,
  found: (options: RehearseOptions) => void,
): void {
  const rehearse = program
    .command('rehearse')
    .description(
      'probe two clusters of yours and run a whole sync of generated data between them, in databases that are dropped again; exit code 0: passed, ' +
        '1: failed or interrupted, 2: could not begin, or could not write the report',
    )
    .helpOption('-h, --help', 'print this help')
  addClusterOptions(rehearse)
    .option('--prefix <name>', 'prefix of the databases that are created on both clusters', prefix, 'tandem_rehearsal')
    .option('--minutes <number>', 'how long the workload runs after the copy', minutes, 10)
    .option('--megabytes <number>', 'size of the data that is copied', megabytes, 64)
    .option('--blockWrites', 'rehearse write blocking, which stops ALL writers of cluster1 until the commit', false)
    .option(
      '--reverse',
      'after the commit, reverse the sync and commit again; requires --blockWrites and two clusters without user databases, and stops ALL their writers',
      false,
    )
    .option(
      '--stepDowns',
      'make the primaries of both clusters (of each shard that can be connected to directly) step down during the copy and while changes are followed; needs the action replSetStateChange',
      false,
    )
    .option('--seed <number>', 'seed of the workload; the same seed repeats it (default: random)', seed)
    .option('--json', 'print one JSON report instead of text', false)
    .option('--report <file>', 'also write the report to this file, as Markdown')
    .action((options) => {
      if (options.reverse && !options.blockWrites) {
        rehearse.error(
          'error: --reverse blocks the writers of both clusters; add --blockWrites, or leave --reverse out',
        )
      }
      found({
        ...readClusters(rehearse, options, env),
        prefix: options.prefix,
        minutes: options.minutes,
        megabytes: options.megabytes,
        blockWrites: options.blockWrites,
        reverse: options.reverse,
        stepDowns: options.stepDowns,
        seed: options.seed ?? null,
        json: options.json,
        report: options.report ?? null,
      })
    })
}

function prefix(text: string): string {
  if (prefixPattern.test(text) && isUserDatabase(`${text}_one`)) return text
  throw new InvalidArgumentError(
    'It must have at most 51 characters (letters, digits, - and _), begin with a letter, and not begin like an ' +
      'internal database.',
  )
}

function minutes(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN
  if (value > 0 && value <= minutesMax) return value
  throw new InvalidArgumentError(`It must be a number above 0 and at most ${minutesMax}.`)
}

const megabytes = (text: string): number => integer(text, 1, megabytesMax)
const seed = (text: string): number => integer(text, 0, 0xffff_ffff)

function integer(text: string, min: number, max: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new InvalidArgumentError(`It must be an integer from ${min} to ${max}.`)
}
