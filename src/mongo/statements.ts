import { bsonType } from '../domain/raw-bson.ts'

/**
 * The statements of update and delete commands as bytes. `idElement` is a document's whole `_id` element (type byte,
 * "_id\0", value), as it stands in the document or in an event's documentKey.
 */

const upsertTrue = Buffer.concat([Buffer.from([bsonType.boolean]), Buffer.from('upsert\0'), Buffer.from([1])])
const limitOne = Buffer.concat([Buffer.from([bsonType.int32]), Buffer.from('limit\0'), Buffer.from([1, 0, 0, 0])])
const queryHead = Buffer.concat([Buffer.from([bsonType.document]), Buffer.from('q\0')])
const updateHead = Buffer.concat([Buffer.from([bsonType.document]), Buffer.from('u\0')])

/** `{q: {_id}, u: document, upsert: true}`: a replacement, so nothing in the document is read as an operator. */
export function upsertStatement(idElement: Buffer, document: Buffer): Buffer {
  const queryLength = 4 + idElement.length + 1
  const total = 4 + queryHead.length + queryLength + updateHead.length + document.length + upsertTrue.length + 1
  const statement = Buffer.allocUnsafe(total)
  let at = statement.writeInt32LE(total, 0)
  at += queryHead.copy(statement, at)
  at = statement.writeInt32LE(queryLength, at)
  at += idElement.copy(statement, at)
  statement[at++] = 0
  at += updateHead.copy(statement, at)
  at += document.copy(statement, at)
  at += upsertTrue.copy(statement, at)
  statement[at] = 0
  return statement
}

/** `{q: {_id}, limit: 1}` */
export function deleteStatement(idElement: Buffer): Buffer {
  const queryLength = 4 + idElement.length + 1
  const total = 4 + queryHead.length + queryLength + limitOne.length + 1
  const statement = Buffer.allocUnsafe(total)
  let at = statement.writeInt32LE(total, 0)
  at += queryHead.copy(statement, at)
  at = statement.writeInt32LE(queryLength, at)
  at += idElement.copy(statement, at)
  statement[at++] = 0
  at += limitOne.copy(statement, at)
  statement[at] = 0
  return statement
}
