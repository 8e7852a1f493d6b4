import { type Command, InvalidArgumentError, Option } from 'commander'
import type { VerifyOptions } from '../comparison/run-verify.ts'
import { type Namespace, parseNamespace } from '../comparison/selection.ts'
import { type NamespaceRename, timeSeriesModes } from '../domain/start-request.ts'
import { addClusterOptions, readClusters } from './cluster-options.ts'
import { collectRemap } from './remap-option.ts'

const differencesDefault = 100
/** The differences are kept in memory until the end. */
const differencesLimit = 1_000_000

export function addVerifyCommand(
  program: Command,
  env: Readonly<Record<string, string | undefined>>,
  found: (options: VerifyOptions) => void,
): void {
  const verify = program
    .command('verify')
    .description(
      'compare two clusters byte for byte while nobody writes to them; exit code 0: equal, 1: different, 2: could not compare',
    )
    .helpOption('-h, --help', 'print this help')
  addClusterOptions(verify)
    .option('--json', 'print one JSON report instead of lines', false)
    .option('--maxDifferences <number>', 'differences to list; all are counted', differencesMax, differencesDefault)
    .option('--namespace <db[.collection]>', 'compare only this; repeat the option for several', collectNamespace)
    .option(
      '--excludeNamespace <db[.collection]>',
      'do not compare this; repeat the option for several',
      collectNamespace,
    )
    .option(
      '--remap <name=name>',
      'compare this database or db.collection of cluster0 with the one of this name on cluster1; repeat the option for several',
      collectRemap,
    )
    .addOption(
      new Option('--timeseries <what>', 'skip: do not compare time-series collections').choices(timeSeriesModes),
    )
    .option('--ignoreIndexes', 'compare no index other than _id; for use after buildIndexes "never"', false)
    .option(
      '--ignoreHashedIndexes',
      'compare no hashed index; for use after buildIndexes "excludeHashed" or "excludeHashedAfterCopy"',
      false,
    )
    .action((options) =>
      found({
        ...readClusters(verify, options, env),
        json: options.json,
        maxDifferences: options.maxDifferences,
        namespaces: options.namespace ?? [],
        excluded: options.excludeNamespace ?? [],
        renamed: renamedDatabases(options.remap ?? []),
        skipTimeSeries: options.timeseries === 'skip',
        ignoreIndexes: options.ignoreIndexes,
        ignoreHashedIndexes: options.ignoreHashedIndexes,
      }),
    )
}

function differencesMax(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value <= differencesLimit) return value
  throw new InvalidArgumentError(`It must be an integer from 0 to ${differencesLimit}.`)
}

function collectNamespace(text: string, before: Namespace[] | undefined): Namespace[] {
  const namespace = parseNamespace(text)
  if (namespace) return [...(before ?? []), namespace]
  throw new InvalidArgumentError('It must be a database or database.collection that is not internal.')
}

function renamedDatabases(renames: readonly NamespaceRename[]): VerifyOptions['renamed'] {
  const textOf = ({ database, collection }: NamespaceRename['from']): string =>
    collection === undefined ? database : `${database}.${collection}`
  return renames.map(({ from, to }) => ({ from: textOf(from), to: textOf(to) }))
}
