import { administration } from './administration.ts'
import { changeStreams } from './change-streams.ts'
import { chunkCommands } from './chunk-commands.ts'
import { argument, type Command, CommandError, type Handler, hasArgument, type Mongos } from './command.ts'
import { ddl } from './ddl.ts'
import { documentCommands, isTailable, routeGetMore, tailableFind } from './document-commands.ts'
import { listings } from './listings.ts'
import { onSingleShard } from './single-shard.ts'
import { routeInTransaction, transactionCommands } from './transactions.ts'

const handlers = new Map<string, Handler>(
  Object.entries({
    ...documentCommands,
    ...listings,
    ...ddl,
    ...chunkCommands,
    ...administration,
    findAndModify: onSingleShard,
    findandmodify: onSingleShard,
  }),
)

/**
 * Commands that a mongos refuses with a write concern (`supportsWriteConcern` in src/mongo/s/commands of the server's
 * source).
 */
const withoutWriteConcern = new Set([
  ...['split', 'addShardToZone', 'updateZoneKeyRange', 'configureCollectionBalancing'],
  ...['balancerStart', 'balancerStop', 'balancerStatus', 'setUserWriteBlockMode'],
])

/** Passes a command to its handler, which decides where in the cluster and as which command it runs. */
export async function route(command: Command, mongos: Mongos): Promise<Buffer> {
  const { name } = command
  if (withoutWriteConcern.has(name) && hasArgument(command, 'writeConcern'))
    throw new CommandError(72, 'InvalidOptions', 'Command does not support writeConcern')
  const inTransaction = hasArgument(command, 'autocommit')
  if (inTransaction && transactionCommands.has(name)) return await routeInTransaction(command, mongos)
  if (name === 'aggregate' && changeStreams.isOpening(command)) return await changeStreams.open(command, mongos)
  if (name === 'find' && isTailable(command)) return await tailableFind(command, mongos)
  if (name === 'getMore') {
    const stream = mongos.streams.get(command.target)
    return stream ? await changeStreams.getMore(command, stream) : await routeGetMore(command, mongos)
  }
  if (name === 'commitTransaction' || name === 'abortTransaction') {
    throw new CommandError(251, 'NoSuchTransaction', `there is no transaction ${argument(command, 'txnNumber')}`)
  }
  const handler = handlers.get(name)
  if (!handler) throw new CommandError(59, 'CommandNotFound', `no such command: '${name}' (mongos stand-in)`)
  return await handler(command, mongos)
}
