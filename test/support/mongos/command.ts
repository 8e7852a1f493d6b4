import type { Document } from 'mongodb'
import type { Catalog } from './catalog.ts'
import type { ClusterClock } from './cluster-clock.ts'
import {
  buildDocument,
  decode,
  decodedValue,
  encode,
  exactValue,
  type Field,
  fieldNamed,
  fieldsOf,
  readFields,
} from './fields.ts'
import type { Links } from './link.ts'
import type { MergedStream } from './merged-stream.ts'
import type { Transaction } from './transactions.ts'
import type { DocumentSequence } from './wire.ts'

/** The state that all clients of one stand-in share. */
export interface Mongos {
  /** Host of the hidden mongod whose router code does the routing (clusterFind and similar commands). */
  router: string
  catalog: Catalog
  clock: ClusterClock
  links: Links
  hasAccessControl: boolean
  openLinks(): Links
  streams: Map<string, MergedStream>
  /** The host of each cursor that is not on the router, by cursor id. */
  cursorHosts: Map<string, string>
  /** Replies to retryable writes that were forwarded without their transaction number, by session and number. */
  answered: Map<string, Buffer>
  transactions: Map<string, Transaction>
}

export interface Login {
  user: string
  database: string
  roles: Document[]
  privileges: Document[]
  mayBypassWriteBlocking: boolean
}

/**
 * One connection of a client. It has its own links, because a server executes the commands of a connection one after the
 * other.
 */
export interface Client {
  links: Links
  login: Login | null
}

export interface Command {
  name: string
  /** The value of the first field: a collection, a namespace, or 1. */
  target: string
  database: string
  namespace: string
  fields: Field[]
  sequences: DocumentSequence[]
  client: Client
}

export type Handler = (command: Command, mongos: Mongos) => Promise<Buffer>

/** An error that is sent to the client as an error reply. */
export class CommandError extends Error {
  readonly reply: Buffer

  constructor(code: number, codeName: string, message: string, reply?: Buffer) {
    super(message)
    this.reply = reply ?? encode({ ok: 0, errmsg: message, code, codeName })
  }
}

export function parseCommand(body: Buffer, sequences: DocumentSequence[], client: Client): Command {
  const fields = readFields(body)
  const [first] = fields
  if (!first) throw new CommandError(40, 'ConflictingUpdateOperators', 'a command has at least one field')
  const target = String(decodedValue(first))
  const database = String(decodedValue(fieldNamed(fields, '$db')) ?? 'admin')
  return { name: first.name, target, database, namespace: `${database}.${target}`, fields, sequences, client }
}

export const argument = (command: Command, name: string): unknown => decodedValue(fieldNamed(command.fields, name))

export const hasArgument = (command: Command, name: string): boolean => fieldNamed(command.fields, name) !== undefined

/** Returns all arguments with JavaScript numbers. */
export const decoded = (command: Command): Document => decode(buildDocument(command.fields))

/** Returns arguments with their exact BSON types, for forwarding. */
export function exactArguments(command: Command, names: string[]): Document {
  const present = names.map((name) => fieldNamed(command.fields, name)).filter((field): field is Field => !!field)
  return Object.fromEntries(present.map((field) => [field.name, exactValue(field)]))
}

/**
 * Returns the argument that tells the router whether the user may bypass write blocking. The stand-in itself has all
 * privileges on the router.
 */
export function bypassOf({ client, fields }: Command): Document {
  if (!client.login || fieldNamed(fields, 'mayBypassWriteBlocking')) return {}
  return { mayBypassWriteBlocking: client.login.mayBypassWriteBlocking }
}

export interface Changes {
  name?: string | undefined
  /** Replaces the first field's value. */
  value?: unknown
  database?: string | undefined
  /** Fields to add. They replace fields of the same names. */
  add?: Document
  drop?: readonly string[]
}

/** Returns the command's fields with the changes applied. The order of the fields is kept. */
export function changedFields(command: Command, { name, value, database, add = {}, drop = [] }: Changes): Field[] {
  const [first, ...rest] = command.fields as [Field, ...Field[]]
  const head = value === undefined ? first : (fieldsOf({ value })[0] as Field)
  const added = { ...add, ...(database === undefined ? {} : { $db: database }) }
  const kept = rest.filter((field) => !drop.includes(field.name) && !(field.name in added))
  return [{ ...head, name: name ?? first.name }, ...kept, ...fieldsOf(added)]
}

export function forward(command: Command, host: string, changes: Changes = {}): Promise<Buffer> {
  return command.client.links.send(host, buildDocument(changedFields(command, changes)), command.sequences)
}

/** Sends another command, given as fields, on the connection of this command's client. */
export function send(command: Command, host: string, fields: Field[], sequences?: DocumentSequence[]): Promise<Buffer> {
  return command.client.links.send(host, buildDocument(fields), sequences)
}

/** Sends another command on the connection of this command's client. Throws an error reply as a CommandError. */
export async function ask(command: Command, host: string, database: string, other: Document): Promise<Document> {
  return succeeded(await command.client.links.send(host, encode({ ...other, $db: database })))
}

/** Returns a successful reply decoded. Throws an error reply as a CommandError. */
export function succeeded(reply: Buffer): Document {
  const document = decode(reply)
  if (!document['ok']) throw new CommandError(document['code'], document['codeName'], document['errmsg'], reply)
  return document
}

/** Returns the code of an error reply, or undefined for success. */
export function errorCode(reply: Buffer): number | undefined {
  const code = decodedValue(fieldNamed(readFields(reply), 'code'))
  return code === undefined ? undefined : Number(code)
}

export const success = (fields: Document = {}): Buffer => encode({ ...fields, ok: 1 })

/** The write concern that the internal DDL commands require. */
export const majority = { writeConcern: { w: 'majority', wtimeout: 60_000 } }
