import type { Command } from 'commander'
import type { InventoryOptions } from '../inventory/run-inventory.ts'
import { addClusterOptions, readClusters } from './cluster-options.ts'

export function addInventoryCommand(
  program: Command,
  env: Readonly<Record<string, string | undefined>>,
  found: (options: InventoryOptions) => void,
): void {
  const inventory = program
    .command('inventory')
    .description(
      'list what tandem does not sync and what differs (users, roles, zones, search indexes, settings), with the commands for mongosh that make ' +
        'cluster1 equal to cluster0; exit code 0: nothing differs, 1: something differs, ' +
        '2: could not compare everything',
    )
    .helpOption('-h, --help', 'print this help')
  addClusterOptions(inventory)
    .option('--json', 'print one JSON report instead of a script', false)
    .action((options) => found({ ...readClusters(inventory, options, env), json: options.json }))
}
