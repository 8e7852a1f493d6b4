import { type Command, Option } from 'commander'
import { peerCommands } from '../domain/peer-command.ts'
import { addAccessOptions, readAccess } from './access.ts'
import {
  type ClientRequest,
  collectUrl,
  commitBody,
  defaultUrls,
  filterBody,
  limitsBody,
  resyncBody,
  withBody,
} from './client-options.ts'
import { failOnSeverities } from './findings.ts'
import type { Environment } from './settings.ts'
import { addStartOptions, startBody } from './start-options.ts'

/** Adds the commands for the HTTP API. */
export function addClientCommands(program: Command, env: Environment, found: (request: ClientRequest) => void): void {
  const client = (name: ClientRequest['command'], description: string) => {
    const command = addAccessOptions(program.command(name))
      .description(description)
      .helpOption('-h, --help', 'print this help')
      .option(
        '--url <url>',
        'address of an instance; repeat the option to send to several at the same time',
        collectUrl,
      )
      .option('--json', 'print JSON even on a terminal; one line for each of several instances')
    if ((peerCommands as readonly string[]).includes(name))
      command.option('--all', 'one instance passes the command on to all instances; give at most one --url')
    if (name === 'mismatches' || name === 'audit') return command
    return command.addOption(
      new Option('--table', 'print one table, even without a terminal or for one instance').conflicts('json'),
    )
  }

  for (const [name, description] of [
    ['start', 'begin a sync'],
    ['check', 'check whether start with the same options would be refused; changes nothing'],
  ] as const) {
    const command = addStartOptions(client(name, description))
    if (name === 'check')
      command.addOption(
        new Option('--fail-on <severity>', 'the exit code is 1 if there is a finding of this severity or a higher one')
          .choices(failOnSeverities)
          .default('error'),
      )
    command.action((options) => {
      const body = startBody(options)
      if (typeof body === 'string') return command.error(`error: ${body}`)
      const { failOn } = options
      found({ command: name, ...clientOptions(command, env), body, ...(failOn && { failOn }) })
    })
  }
  client('limit', 'change the limits on bulk work at once; they apply until they are changed again')
    .option(
      '--bytesPerSecond <number>',
      'bytes of documents copied, or read for the first verification, per second; none: no limit',
    )
    .option('--readConcurrency <number>', 'ranges of documents read at a time; none: --loadLevel decides')
    .option('--writeConcurrency <number>', 'batches of the copy written at a time; none: --loadLevel decides')
    .action((options, command: Command) =>
      found({ command: 'limit', ...clientOptions(command, env), body: { inline: limitsBody(options) } }),
    )
  client('commit', 'end the sync: hand over to the destination')
    .option(
      '--dry-run',
      'rehearse the commit: perform all steps up to the verdict, then continue as before; progress shows the result',
    )
    .option('--max-seconds <number>', 'abort if the commit is not decided within this many seconds')
    .option(...yes)
    .action((options, command: Command) =>
      found({
        command: 'commit',
        ...clientOptions(command, env),
        body: { inline: commitBody(options) },
        confirms: !options.yes && !options.dryRun,
      }),
    )
  client('reverse', 'reverse the direction of a committed reversible sync')
    .option(...yes)
    .action((options, command: Command) =>
      found({ command: 'reverse', ...clientOptions(command, env), body: { inline: {} }, confirms: !options.yes }),
    )
  client('resync', 'compare collections with the source again and write what differs; all instances take part')
    .requiredOption('--namespace <db.collection...>', 'a collection; may be repeated')
    .action((options, command: Command) =>
      found({ command: 'resync', ...clientOptions(command, env), body: { inline: resyncBody(options) } }),
    )
  withBody(
    client('filter', 'replace the filter of the sync; newly included collections are made equal to the source'),
    (filter) =>
      filter
        .option(
          '--includeNamespaces <json>',
          'only these databases and collections are synced, as in the body of start',
        )
        .option('--excludeNamespaces <json>', 'these databases and collections are left out')
        .option(
          '--dropExcluded',
          'drop newly excluded collections and views on the destination; otherwise they stay there',
        ),
  ).action((options, command: Command) => {
    const body = filterBody(options)
    if (typeof body === 'string') command.error(`error: ${body}`)
    else found({ command: 'filter', ...clientOptions(command, env), body })
  })
  client(
    'collections',
    'print the progress of each collection: first those with mismatches, then those with the most work left',
  )
    .option('--limit <number>', 'rows to show, at most 200; 100 by default')
    .option('--after <number>', 'rows to skip')
    .action((options: { limit?: string; after?: string }, command: Command) => {
      const { limit, after } = options
      const query = { ...(limit !== undefined && { limit }), ...(after !== undefined && { after }) }
      const request = { command: 'collections' as const, ...clientOptions(command, env), body: { inline: {} }, query }
      found(request)
    })
  for (const [name, description, listed] of [
    ['mismatches', 'print the differences that a failed verification found', 'differences to list'],
    ['audit', 'print the audit trail: who sent which command, and its outcome', 'entries to list, the newest first'],
  ] as const) {
    client(name, description)
      .option('--limit <number>', `${listed}; 1000 by default, which is also the maximum`)
      .action(({ limit }: { limit?: string }, command: Command) =>
        found({
          ...{ command: name, ...clientOptions(command, env), body: { inline: {} } },
          ...(limit !== undefined && { query: { limit } }),
        }),
      )
  }
  for (const [name, description] of [
    ['progress', 'print the status of the sync'],
    ['instances', 'print the status of all instances of the sync, and their totals'],
    ['limits', 'print the limits on bulk work'],
    ['pause', 'pause the addressed instances; with --all, every instance of the sync'],
    ['resume', 'resume the addressed instances that are paused, or that have failed and whose cause is fixed'],
    ['abort', 'abort a commit that is not decided yet; the sync continues as before'],
    ['repair', 'correct the documents that a failed verification named; then send resume'],
  ] as const) {
    client(name, description).action((_options, command: Command) =>
      found({ command: name, ...clientOptions(command, env), body: { inline: {} } }),
    )
  }
}

/** The option of commands that are confirmed at a terminal. */
const yes = ['-y, --yes', 'do not ask for confirmation on a terminal'] as const

interface SharedOptions {
  url?: string[]
  all?: boolean
  table?: boolean
  json?: boolean
}

/** Options that all client commands share: addresses, access, and form of the answers. */
function clientOptions(command: Command, env: Environment): Pick<ClientRequest, 'urls' | 'all' | 'access' | 'form'> {
  const { url, all, table, json } = command.opts<SharedOptions>()
  const urls = url ?? defaultUrls
  // Each of several instances would pass the command on, and all but one of these commands would be refused.
  if (all && urls.length > 1) command.error('error: --all: one instance passes the command on to all; give one --url')
  const access = readAccess(command, urls, env)
  const form = table ? 'table' : json ? 'json' : null
  return { urls, ...(all && { all }), ...(access && { access }), ...(form && { form }) }
}
