import { randomUUID } from 'node:crypto'
import { Long, UUID } from 'mongodb'
import { argument, type Command, changedFields, errorCode, type Mongos } from './command.ts'
import { decode, fieldNamed, fieldsOf, readFields } from './fields.ts'
import { routeInTransaction } from './transactions.ts'

/**
 * An update that moves a document to another shard by changing its shard key: a mongos carries a retryable one out as a
 * transaction of its own. The router cannot, and refuses it in these words.
 */
export function isRefusedMove(command: Command, reply: Buffer): boolean {
  if (command.name !== 'update') return false
  const { errmsg = '', writeErrors = [] } = decode(reply)
  const messages = [errmsg, ...writeErrors.map((error: { errmsg: string }) => error.errmsg)]
  return messages.some((message) => /Transaction numbers are only allowed|shard key .* transaction/.test(message))
}

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
