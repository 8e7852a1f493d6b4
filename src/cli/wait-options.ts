import { type Command, InvalidArgumentError, Option } from 'commander'
import { addAccessOptions, readAccess } from './access.ts'
import { collectUrl, defaultUrls } from './client-options.ts'
import type { Environment } from './settings.ts'
import { conditions, type WaitRequest, waitCodes } from './wait.ts'
import type { WatchRequest } from './watch.ts'

type Found = (parsed: { kind: 'wait'; request: WaitRequest } | { kind: 'watch'; request: WatchRequest }) => void

/** Adds the commands that query repeatedly: wait and watch. */
export function addWaitCommands(program: Command, env: Environment, found: Found): void {
  const names = Object.keys(conditions)
  const targetOf = (command: Command) => {
    const urls: string[] = command.getOptionValue('url') ?? defaultUrls
    const access = readAccess(command, urls, env)
    return { urls, ...(access && { access }) }
  }
  addAccessOptions(program.command('wait'))
    .description(
      `wait until a condition holds for all instances; exit code ${waitCodes.reached}: it holds, ${waitCodes.failed}: one is FAILED, ` +
        `${waitCodes.timedOut}: not in time, ${waitCodes.denied}: an instance denies access`,
    )
    .helpOption('-h, --help', 'print this help')
    .option('--url <url>', 'address of an instance; repeat it for several', collectUrl)
    .addOption(new Option('--until <condition>', 'what to wait for').choices(names).makeOptionMandatory())
    .option('--timeout <seconds>', 'stop waiting after this many seconds; by default there is no limit', positive)
    .option('--json', 'print the outcome, and the last progress of the instances, as JSON', false)
    .action(({ until, timeout, json }, command: Command) =>
      found({ kind: 'wait', request: { ...targetOf(command), until, timeoutSeconds: timeout ?? null, json } }),
    )
  addAccessOptions(program.command('watch'))
    .description(
      'show the state of the sync until you press Ctrl-C: live on a terminal, otherwise one line per interval',
    )
    .helpOption('-h, --help', 'print this help')
    .option('--url <url>', 'address of an instance; repeat it for several', collectUrl)
    .option('--interval <seconds>', 'seconds between two requests; 1 on a terminal, otherwise 10', positive)
    .option('--json', 'print all data as one line of JSON each time', false)
    .action(({ interval, json }, command: Command) =>
      found({ kind: 'watch', request: { ...targetOf(command), intervalSeconds: interval ?? null, json } }),
    )
}

function positive(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN
  if (value > 0) return value
  throw new InvalidArgumentError('It must be a number of seconds above 0.')
}
