import { Binary, type Document } from 'mongodb'
import { argument, type Client, type Command, CommandError, decoded, type Mongos, success } from './command.ts'
import { encode } from './fields.ts'
import { ScramServer, userIn } from './scram.ts'

/**
 * Handshake and authentication of clients. The mongos stand-in does not authorize commands: it sends them to the
 * servers as the internal user `__system`. Of a client's privileges, only `bypassWriteBlockingMode` has an effect.
 */

const mechanism = 'SCRAM-SHA-256'
const commandsWithoutLogin = ['ping', 'buildInfo', 'buildinfo', 'endSessions']
const wireVersionOf6 = 17

interface Exchange {
  scram: ScramServer
  user: Document
}

const exchanges = new WeakMap<Client, Exchange>()

export function isLoginCommand({ name }: Command, { hasAccessControl }: Mongos): boolean {
  if (['hello', 'isMaster', 'ismaster'].includes(name)) return true
  return hasAccessControl && ['saslStart', 'saslContinue', 'logout', 'connectionStatus'].includes(name)
}

export async function authenticate(command: Command, mongos: Mongos): Promise<Buffer> {
  const { client } = command
  switch (command.name) {
    case 'saslStart':
      return await startLogin(command, mongos)
    case 'saslContinue':
      return finishLogin(command)
    case 'logout':
      client.login = null
      return success()
    case 'connectionStatus':
      return connectionStatus(command)
    default:
      return answerHello(command, mongos)
  }
}

export function requireLogin({ name, client }: Command, { hasAccessControl }: Mongos): void {
  if (!hasAccessControl || client.login || commandsWithoutLogin.includes(name)) return
  throw new CommandError(13, 'Unauthorized', `command ${name} requires authentication`)
}

/** Answers `hello` without a topologyVersion: the stand-in cannot push topology changes, so drivers have to poll. */
export function answerHello(command: Command, { hasAccessControl }: Mongos): Buffer {
  const asksMechanisms = hasAccessControl && command.fields.some(({ name }) => name === 'saslSupportedMechs')
  return success({
    [command.name === 'hello' ? 'isWritablePrimary' : 'ismaster']: true,
    helloOk: true,
    msg: 'isdbgrid',
    maxBsonObjectSize: 16 * 1024 * 1024,
    maxMessageSizeBytes: 48_000_000,
    maxWriteBatchSize: 100_000,
    localTime: new Date(),
    logicalSessionTimeoutMinutes: 30,
    connectionId: 1,
    minWireVersion: 0,
    maxWireVersion: wireVersionOf6,
    readOnly: false,
    ...(asksMechanisms ? { saslSupportedMechs: [mechanism] } : {}),
  })
}

async function startLogin(command: Command, mongos: Mongos): Promise<Buffer> {
  const { payload, mechanism: wanted } = decoded(command)
  if (wanted !== mechanism)
    throw new CommandError(334, 'MechanismUnavailable', `the mongos stand-in only supports ${mechanism}`)
  const clientFirst = textOf(payload)
  const { users } = await mongos.links.ask(await mongos.catalog.configuration(), 'admin', {
    usersInfo: { user: userIn(clientFirst), db: command.database },
    showCredentials: true,
    showPrivileges: true,
  })
  const user = users?.[0] as Document | undefined
  const credentials = user?.['credentials']?.[mechanism]
  if (!user || !credentials) throw authenticationFailed()
  const scram = new ScramServer(credentials, clientFirst)
  exchanges.set(command.client, { scram, user })
  return success({ conversationId: 1, done: false, payload: payloadOf(scram.first) })
}

function finishLogin(command: Command): Buffer {
  const exchange = exchanges.get(command.client)
  if (!exchange) throw new CommandError(17, 'ProtocolError', 'the client has not started a login')
  const clientFinal = textOf(argument(command, 'payload'))
  // Some drivers end the exchange with an empty message.
  if (clientFinal === '') return encode({ conversationId: 1, done: true, payload: payloadOf(''), ok: 1 })
  const serverFinal = exchange.scram.final(clientFinal)
  if (serverFinal === null) throw authenticationFailed()
  const { user, db, inheritedRoles = [], inheritedPrivileges = [] } = exchange.user
  command.client.login = {
    user,
    database: db,
    roles: inheritedRoles,
    privileges: inheritedPrivileges,
    mayBypassWriteBlocking: inheritedPrivileges.some(({ actions }: Document) =>
      actions.includes('bypassWriteBlockingMode'),
    ),
  }
  return success({ conversationId: 1, done: true, payload: payloadOf(serverFinal) })
}

function connectionStatus(command: Command): Buffer {
  const { login } = command.client
  const authInfo = {
    authenticatedUsers: login ? [{ user: login.user, db: login.database }] : [],
    authenticatedUserRoles: login?.roles ?? [],
    ...(argument(command, 'showPrivileges') ? { authenticatedUserPrivileges: login?.privileges ?? [] } : {}),
  }
  return success({ authInfo })
}

const authenticationFailed = () => new CommandError(18, 'AuthenticationFailed', 'Authentication failed.')

const payloadOf = (text: string) => new Binary(Buffer.from(text))

const textOf = (payload: unknown): string => Buffer.from((payload as Binary).buffer).toString()
