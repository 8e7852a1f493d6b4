import { type Command, Option } from 'commander'
import { type CopyReadPreference, copyReadPreferences } from '../domain/read-preference.ts'
import type { RedisTls } from '../domain/redis-url.ts'
import type { ShardNamePairs } from '../domain/shard-names.ts'
import { redactUri, shownUri } from '../domain/uri-rules.ts'
import type { LogOptions } from '../log/log-options.ts'
import { addClusterOptions, readClusters } from './cluster-options.ts'
import { addListenOptions, type ListenOptions, readListenOptions } from './listen-options.ts'
import { addLogOptions, readLogOptions } from './log-options.ts'
import { addRedisOptions, readRedis, readRedisTls } from './redis-option.ts'
import { addConfigOption, applySettings, type Environment, type Origin } from './settings.ts'
import { instanceId, integerBetween, shardNames, syncName } from './values.ts'

export interface ServeCommandOptions extends ListenOptions, LogOptions {
  cluster0: string
  cluster1: string
  port: number
  id: string
  /** The name of the sync; null: it has none. */
  syncName: string | null
  loadLevel: 1 | 2 | 3 | 4
  copyReadPreference: CopyReadPreference
  /** Shards that have different names on the two clusters, for the zones. */
  shardNames: ShardNamePairs
  /** URL of the Redis that carries heartbeats; null: the destination cluster carries them. */
  redis: string | null
  redisTls: RedisTls
  exitOnFailure: boolean
  /** Notices to print, for instance about options that are ignored. */
  notices: string[]
}

/** The id that mongosync gives an instance without --id. */
const defaultId = 'coordinator'

/** Options of mongosync that have no effect in tandem. A command line or file for mongosync must still work. */
const ignoredOptions = [
  { flags: '--acceptDisclaimer [boolean]', name: 'acceptDisclaimer', why: 'tandem has no disclaimer' },
  { flags: '--disableTelemetry [boolean]', name: 'disableTelemetry', why: 'tandem sends no telemetry' },
  { flags: '--metricsLoggingFilepath <path>', name: 'metricsLoggingFilepath', why: 'tandem writes no metrics file' },
  { flags: '--disableMetricsLogging [boolean]', name: 'disableMetricsLogging', why: 'tandem writes no metrics file' },
  {
    flags: '--createIndexesBatchSize <number>',
    name: 'createIndexesBatchSize',
    why: 'tandem builds all indexes of a collection with one command',
  },
  {
    flags: '--hotDocIDs <json...>',
    name: 'hotDocIDs',
    why: 'tandem writes the current version of a changed document once, however often the document has changed',
  },
  {
    flags: '--enableCappedCollectionHandling [boolean]',
    name: 'enableCappedCollectionHandling',
    why: 'tandem always syncs capped collections that the source creates',
  },
]

/** Adds the options of an instance, in the order in which they are printed. */
export function addServeOptions(command: Command): Command {
  addListenOptions(
    addRedisOptions(addClusterOptions(command)).option(
      '--port <number>',
      'port of the HTTP API; 0 takes a free one',
      integerBetween(0, 65_535),
      27_182,
    ),
  )
    .option('--id <id>', 'name of this instance; needed when several share the work', instanceId, defaultId)
    .option(
      '--syncName <name>',
      'name of the sync; needed when several syncs have the same destination; the same for all instances of a sync',
      syncName,
    )
    .option(
      '--loadLevel <level>',
      'load on the clusters, 1 to 4: 1, 2, 4 or 8 ranges are copied at a time; 1 and 2 also rest after each write',
      integerBetween(1, 4),
      3,
    )
    .addOption(
      new Option(
        '--copyReadPreference <mode>',
        'which members of a source replica set answer the reads of the copy and of the first verification',
      )
        .choices(copyReadPreferences)
        .default('primary'),
    )
    .option(
      '--shardNames <pairs>',
      'shards of cluster1 that get the zones of shards of cluster0 with other names: rs0=shardA,rs1=shardB; the same for all instances',
      shardNames,
    )
  addLogOptions(command).option(
    '--exitOnFailure',
    'exit when the sync fails, as mongosync does, instead of continuing to answer requests',
    false,
  )
  for (const { flags, why } of ignoredOptions)
    command.option(flags, `accepted because mongosync has it, but has no effect: ${why}`)
  return addConfigOption(command)
}

export function readServeOptions(command: Command, env: Environment): ServeCommandOptions {
  applySettings(command, env)
  const options = command.opts()
  const { notices: listenNotices, ...listen } = readListenOptions(command)
  const redis = readRedis(command, options, env)
  const redisTls = readRedisTls(command, redis)
  return {
    ...readClusters(command, options, env),
    ...listen,
    redis,
    redisTls,
    port: options['port'],
    id: options['id'],
    syncName: options['syncName'] ?? null,
    loadLevel: options['loadLevel'],
    copyReadPreference: options['copyReadPreference'],
    shardNames: options['shardNames'] ?? [],
    ...readLogOptions(command),
    exitOnFailure: options['exitOnFailure'],
    notices: [
      ...ignoredOptions
        .filter(({ name }) => options[name] !== undefined)
        .map(({ name, why }) => `--${name} is ignored: ${why}`),
      ...listenNotices,
    ],
  }
}

/** The options for the log, without secrets: neither credentials nor tokens nor the contents of files. */
export function shownOptions(options: ServeCommandOptions): Record<string, unknown> {
  const {
    cluster0,
    cluster1,
    id,
    syncName: name,
    port,
    bind,
    loadLevel,
    logPath,
    logLevel,
    redis,
    exitOnFailure,
  } = options
  return {
    ...{ cluster0: shownUri(cluster0), cluster1: shownUri(cluster1), id, port, bind, loadLevel, logPath },
    ...{ verbosity: logLevel, redis: redis && redactUri(redis), exitOnFailure },
    ...(name !== null && { syncName: name }),
    ...{ tls: options.tls !== null, token: options.tokens !== null },
  }
}

export interface EffectiveSetting {
  name: string
  /** The value without credentials; null if nothing is set. */
  value: unknown
  origin: Origin
}

/** The settings that an instance with the same options would use, and the origin of each. */
export function effectiveSettings(command: Command, env: Environment): EffectiveSetting[] {
  const origins = applySettings(command, env)
  const ignored = new Set(ignoredOptions.map(({ name }) => name))
  const options = command.opts()
  return [...origins].flatMap(([name, origin]) => {
    if (ignored.has(name)) return []
    const value: unknown = options[name] ?? null
    const shown = name === 'token' && value !== null ? '***' : value
    return [{ name, value: typeof shown === 'string' ? redactUri(shown) : shown, origin }]
  })
}
