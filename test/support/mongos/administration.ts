import {
  argument,
  type Command,
  CommandError,
  errorCode,
  forward,
  type Handler,
  type Mongos,
  majority,
  succeeded,
  success,
} from './command.ts'
import { buildDocument, fieldsOf, readFields } from './fields.ts'

/** Commands that the config server executes under an internal name. */
const configurationCommands = {
  addShard: '_configsvrAddShard',
  addshard: '_configsvrAddShard',
  removeShard: '_configsvrRemoveShard',
  addShardToZone: '_configsvrAddShardToZone',
  removeShardFromZone: '_configsvrRemoveShardFromZone',
  updateZoneKeyRange: '_configsvrUpdateZoneKeyRange',
  setUserWriteBlockMode: '_configsvrSetUserWriteBlockMode',
  setClusterParameter: '_configsvrSetClusterParameter',
  balancerCollectionStatus: '_configsvrBalancerCollectionStatus',
  clearJumboFlag: '_configsvrClearJumboFlag',
}

/** Commands that the config server executes under an internal name without a write concern. */
const balancerCommands = {
  balancerStart: '_configsvrBalancerStart',
  balancerStop: '_configsvrBalancerStop',
  balancerStatus: '_configsvrBalancerStatus',
  configureCollectionBalancing: '_configsvrConfigureCollectionBalancing',
}

/** Commands that are forwarded unchanged to the config server, which stores the cluster's users, roles and defaults. */
const commandsOfConfiguration = [
  ...['createUser', 'updateUser', 'dropUser', 'dropAllUsersFromDatabase', 'usersInfo'],
  ...['grantRolesToUser', 'revokeRolesFromUser'],
  ...['createRole', 'updateRole', 'dropRole', 'rolesInfo', 'grantPrivilegesToRole', 'revokePrivilegesFromRole'],
  ...['setDefaultRWConcern', 'setFeatureCompatibilityVersion', 'getClusterParameter'],
]

/** Commands about the process itself, which the router answers for the stand-in. */
const commandsOfRouter = [
  ...['ping', 'buildInfo', 'buildinfo', 'hostInfo', 'connectionStatus', 'whatsmyuri', 'listCommands', 'features'],
  ...[
    'getParameter',
    'setParameter',
    'getLog',
    'getCmdLineOpts',
    'logRotate',
    'configureFailPoint',
    'waitForFailPoint',
  ],
  ...['startSession', 'endSessions', 'refreshSessions', 'killSessions', 'killAllSessions', 'killAllSessionsByPattern'],
  ...['flushRouterConfig', 'getDefaultRWConcern', 'currentOp', 'connPoolStats'],
]

/** Sections of `serverStatus` that describe a mongod. They are removed from the router's reply. */
const memberStatus = ['repl', 'opLatencies', 'sharding', 'storageEngine', 'wiredTiger']

const withHandler = <T>(names: readonly string[], handler: T): Record<string, T> =>
  Object.fromEntries(names.map((name) => [name, handler]))

export const administration: Record<string, Handler> = {
  ...withHandler(commandsOfRouter, (command, { router }) => forward(command, router)),
  ...withHandler(commandsOfConfiguration, async (command, { catalog }) =>
    forward(command, await catalog.configuration()),
  ),
  ...withHandler(Object.keys(configurationCommands), async (command, { catalog }) => {
    const name = configurationCommands[command.name as keyof typeof configurationCommands]
    return await forward(command, await catalog.configuration(), { name, add: majority })
  }),
  ...withHandler(Object.keys(balancerCommands), async (command, { catalog }) => {
    const name = balancerCommands[command.name as keyof typeof balancerCommands]
    return await forward(command, await catalog.configuration(), { name })
  }),
  serverStatus,
  isdbgrid: async () => success({ isdbgrid: 1, hostname: '127.0.0.1' }),
  listShards: async (_command, { catalog }) => success({ shards: await catalog.shards() }),
  appendOplogNote: onAllShards,
  killOp,
}

async function serverStatus(command: Command, { router }: Mongos): Promise<Buffer> {
  const reply = await forward(command, router)
  if (errorCode(reply) !== undefined) return reply
  const kept = readFields(reply).filter(({ name }) => name !== 'process' && !memberStatus.includes(name))
  return buildDocument([...fieldsOf({ process: 'mongos' }), ...kept])
}

async function onAllShards(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const shards = await catalog.shardNames()
  const replies = await Promise.all(
    shards.map(async (shard) => [shard, succeeded(await forward(command, await catalog.host(shard)))] as const),
  )
  return success({ raw: Object.fromEntries(replies.map(([shard]) => [shard, { ok: 1 }])) })
}

/** Kills an operation by its name on a mongos, which is `shard:number`. */
async function killOp(command: Command, { catalog }: Mongos): Promise<Buffer> {
  const operation = /^(.+):(\d+)$/.exec(String(argument(command, 'op')))
  if (!operation) throw new CommandError(9, 'FailedToParse', 'killOp needs an operation of the form shard:number')
  const [, shard = '', number] = operation
  return await forward(command, await catalog.host(shard), { add: { op: Number(number) } })
}
