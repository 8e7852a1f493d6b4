import { type Command, Option } from 'commander'
import type { CleanOptions } from '../clean/run-clean.ts'
import { addClusterOptions, readClusters } from './cluster-options.ts'
import { addRedisOptions, readRedis, readRedisTls } from './redis-option.ts'
import { syncName } from './values.ts'

export function addCleanCommand(
  program: Command,
  env: Readonly<Record<string, string | undefined>>,
  found: (options: CleanOptions) => void,
): void {
  const clean = program
    .command('clean')
    .description(
      'remove what an abandoned sync has left on both clusters: write blocks, a stopped balancer, and its metadata; lists it first; exit code 0: ' +
        'nothing is left, 1: something is left, 2: could not read both clusters, 4: an instance is alive, 6: failed half-way',
    )
    .helpOption('-h, --help', 'print this help')
  addRedisOptions(addClusterOptions(clean))
    .option('--syncName <name>', 'name of the sync, if its instances have one (or TANDEM_SYNC_NAME)', syncName)
    .addOption(
      new Option(
        '--unblock <cluster...>',
        'allow user writes on this cluster, even if the sync did not block them; may be repeated',
      ).choices(['cluster0', 'cluster1']),
    )
    .addOption(new Option('--dry-run', 'only list what would change; do not ask for confirmation').conflicts('yes'))
    .option('-y, --yes', 'change the clusters without asking for confirmation; required if there is no terminal')
    .option('--json', 'print one JSON report instead of lines; do not ask for confirmation', false)
    .action((options) => {
      const redis = readRedis(clean, options, env)
      found({
        ...readClusters(clean, options, env),
        redis,
        redisTls: readRedisTls(clean, redis),
        syncName: options.syncName ?? nameFrom(clean, env),
        unblock: options.unblock ?? [],
        yes: options.yes === true,
        dryRun: options.dryRun === true,
        json: options.json,
      })
    })
}

function nameFrom(command: Command, env: Readonly<Record<string, string | undefined>>): string | null {
  const given = env['TANDEM_SYNC_NAME']
  if (!given) return null
  try {
    return syncName(given)
  } catch (error) {
    return command.error(`error: environment variable TANDEM_SYNC_NAME: ${(error as Error).message}`)
  }
}
