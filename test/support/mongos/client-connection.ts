import type { Socket } from 'node:net'
import { answerHello, authenticate, isLoginCommand, requireLogin } from './authentication.ts'
import { argument, type Client, type Command, CommandError, errorCode, type Mongos, parseCommand } from './command.ts'
import { buildDocument, encode, readFields } from './fields.ts'
import { route } from './route.ts'
import { encodeMessage, encodeReply, flag, messageReader, opQuery, parseMessage } from './wire.ts'

/**
 * Codes of errors that a shard or the router returns for stale routing information: StaleDbVersion, StaleEpoch,
 * StaleConfig.
 */
const staleCodes = [249, 63, 13388]
/** Codes of NotWritablePrimary, PrimarySteppedDown and InterruptedDueToReplStateChange. */
const noPrimaryCodes = [10107, 189, 11602]
const staleAttemptsMax = 10

/** Fields of a mongod's reply that a mongos does not return, or that the stand-in takes from the cluster's clock. */
const memberFields = new Set([
  '$clusterTime',
  'operationTime',
  '$configTime',
  '$topologyTime',
  '$configServerState',
  '$gleStats',
  'lastCommittedOpTime',
])

export function serveClient(socket: Socket, mongos: Mongos): void {
  const client: Client = { links: mongos.openLinks(), login: null }
  let queue = Promise.resolve()
  socket.setNoDelay(true)
  socket.on(
    'data',
    messageReader((message) => {
      queue = queue.then(() => answer(socket, message, client, mongos)).catch((error) => void socket.destroy(error))
    }),
  )
  socket.on('error', () => {}) // Node emits 'close' afterwards.
  socket.on('close', () => client.links.close())
}

async function answer(socket: Socket, bytes: Buffer, client: Client, mongos: Mongos): Promise<void> {
  const { requestId, opCode, flags, body, sequences } = parseMessage(bytes)
  const command = parseCommand(body, sequences, client)
  if (opCode === opQuery) {
    socket.write(encodeReply(answerHello(command, mongos), requestId))
    return
  }
  const reply = await replyTo(command, mongos)
  if (flags & flag.moreToCome) return
  socket.write(encodeMessage(withClusterTime(reply, mongos), [], requestId))
}

async function replyTo(command: Command, mongos: Mongos): Promise<Buffer> {
  try {
    if (isLoginCommand(command, mongos)) return await authenticate(command, mongos)
    requireLogin(command, mongos)
    return await routeWithRetries(command, mongos)
  } catch (error) {
    if (error instanceof CommandError) return error.reply
    // Either a server is down or restarting, or the stand-in has a bug. Drivers retry after HostUnreachable.
    const message = error instanceof Error ? error.message : String(error)
    if (!isNetworkError(error)) process.stderr.write(`${command.name}: ${(error as Error).stack}\n`)
    return encode({ ok: 0, errmsg: `mongos stand-in: ${message}`, code: 6, codeName: 'HostUnreachable' })
  }
}

/**
 * Routes a command and retries after a stale error. A real mongos refreshes its routing table by itself; the router
 * needs an explicit flush.
 */
async function routeWithRetries(command: Command, mongos: Mongos): Promise<Buffer> {
  for (let attempt = 1; ; attempt++) {
    const reply = await route(command, mongos)
    const code = errorCode(reply)
    if (code === undefined) return reply
    if (noPrimaryCodes.includes(code)) mongos.catalog.forgetPrimaries()
    // In a transaction, the client must retry the whole transaction.
    const inTransaction = argument(command, 'autocommit') !== undefined
    if (!staleCodes.includes(code) || inTransaction || attempt === staleAttemptsMax) return reply
    await mongos.links.ask(mongos.router, 'admin', { flushRouterConfig: command.database })
  }
}

function withClusterTime(reply: Buffer, { clock }: Mongos): Buffer {
  const fields = readFields(reply).filter(({ name }) => !memberFields.has(name))
  return buildDocument([...fields, ...clock.fields()])
}

function isNetworkError(error: unknown): boolean {
  return error instanceof Error && ('syscall' in error || /closed$/.test(error.message))
}
