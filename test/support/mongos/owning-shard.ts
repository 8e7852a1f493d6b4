import { randomUUID } from 'node:crypto'
import { Long, UUID } from 'mongodb'
import { argument, type Command, changedFields, errorCode, type Mongos } from './command.ts'
import { decode, fieldNamed, fieldsOf, readFields } from './fields.ts'
import { routeInTransaction } from './transactions.ts'

/**
 * Returns whether the router rejected an update because its new shard key moves the document to another shard. A mongos
 * executes such a retryable update as a transaction. The router cannot, and fails with one of these messages.
 */
export function isRefusedMove(command: Command, reply: Buffer): boolean {
  if (command.name !== 'update') return false
  const { errmsg = '', writeErrors = [] } = decode(reply)
  const messages = [errmsg, ...writeErrors.map((error: { errmsg: string }) => error.errmsg)]
  return messages.some((message) => /Transaction numbers are only allowed|shard key .* transaction/.test(message))
}

/** Executes the update in a transaction, as a mongos does. */
export async function updateInTransaction(command: Command, mongos: Mongos): Promise<Buffer> {
  const client = command.client
  const lsid = { id: new UUID(randomUUID()) }
  const inTransaction = { lsid, txnNumber: Long.ONE, autocommit: false }
  const drop = ['txnNumber', 'lsid', 'writeConcern']
  const fields = changedFields(command, { drop, add: { ...inTransaction, startTransaction: true } })
  const reply = await routeInTransaction({ ...command, fields }, mongos)
  const hasFailed = errorCode(reply) !== undefined || fieldNamed(readFields(reply), 'writeErrors') !== undefined
  const name = hasFailed ? 'abortTransaction' : 'commitTransaction'
  const writeConcern = argument(command, 'writeConcern') ?? { w: 'majority' }
  const end = fieldsOf({ [name]: 1, ...inTransaction, writeConcern, $db: 'admin' })
  const ending = { name, target: '1', database: 'admin', namespace: 'admin.1', fields: end, sequences: [], client }
  const ended = await routeInTransaction(ending, mongos)
  return hasFailed || errorCode(ended) === undefined ? reply : ended
}
