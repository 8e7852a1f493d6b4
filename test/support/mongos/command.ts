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

/** What all clients of one stand-in share. */
export interface Mongos {
  /** Host of the hidden mongod whose router code does the routing (clusterFind and its like). */
  router: string
  catalog: Catalog
  clock: ClusterClock
  links: Links
  hasAccessControl: boolean
  openLinks(): Links
  streams: Map<string, MergedStream>
  /** Where a cursor lives that is not on the router. */
  cursorHosts: Map<string, string>
  /** Replies to retryable writes whose transaction number had to be taken away, by session and number. */
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

/** One connection of a client. It has links of its own, for a server answers a connection's commands one by one. */
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

/** An error reply, on its way to the client. */
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

/** All arguments; numbers become JavaScript's. */
export const decoded = (command: Command): Document => decode(buildDocument(command.fields))

/** Arguments with their exact types, to be sent on. */
export function exactArguments(command: Command, names: string[]): Document {
  const found = names.map((name) => fieldNamed(command.fields, name)).filter((field): field is Field => !!field)
  return Object.fromEntries(found.map((field) => [field.name, exactValue(field)]))
}

/** The router is asked by the stand-in, who may do everything; so it is told whether the user may write when writes are blocked. */
export function bypassOf({ client, fields }: Command): Document {
  if (!client.login || fieldNamed(fields, 'mayBypassWriteBlocking')) return {}
  return { mayBypassWriteBlocking: client.login.mayBypassWriteBlocking }
}

export interface Changes {
  name?: string | undefined
  /** Instead of the first field's value. */
  value?: unknown
  database?: string | undefined
  /** Replace fields of the same names. */
  add?: Document
  drop?: readonly string[]
}

/** The command's fields under another name, with arguments taken away and others added; their order is kept. */
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

/** Another command in the name of this one, given as fields. */
export function send(command: Command, host: string, fields: Field[], sequences?: DocumentSequence[]): Promise<Buffer> {
  return command.client.links.send(host, buildDocument(fields), sequences)
}

/** Another command in the name of this one; throws its error reply. */
export async function ask(command: Command, host: string, database: string, other: Document): Promise<Document> {
  return succeeded(await command.client.links.send(host, encode({ ...other, $db: database })))
}

/** The reply, provided that it reports success. */
export function succeeded(reply: Buffer): Document {
  const document = decode(reply)
  if (!document['ok']) throw new CommandError(document['code'], document['codeName'], document['errmsg'], reply)
  return document
}

/** The code of an error reply, or undefined for success. */
export function errorCode(reply: Buffer): number | undefined {
  const code = decodedValue(fieldNamed(readFields(reply), 'code'))
  return code === undefined ? undefined : Number(code)
}

export const success = (fields: Document = {}): Buffer => encode({ ...fields, ok: 1 })

/** Majority, as the internal commands of DDL demand it. */
export const majority = { writeConcern: { w: 'majority', wtimeout: 60_000 } }
