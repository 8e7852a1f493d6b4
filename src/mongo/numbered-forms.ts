import type { Document } from 'mongodb'
import { statementCount } from './raw-values.ts'

/**
 * The forms in which tandem sends a write with a number (`txnNumber`). The server rejects the write once it has seen a
 * higher number in the session.
 */
export interface NumberedForms {
  /** True if the command is first sent as a transaction of its own. */
  transaction: boolean
  /** True if the command may be sent as a retryable write, at first or after the transaction was aborted. */
  retryable: boolean
}

/**
 * With fewer statements, a retryable write is cheaper. For every retryable update or delete the server writes an oplog
 * entry and a session record, which takes 1.3 to 2 times the CPU of the plain write. A transaction needs one oplog
 * entry and one record for all of its statements (docs/bench-history.md, "Numbered writes"). Retryable inserts are
 * recorded per batch.
 */
const transactionFrom = 8

/** Returns null for commands that carry no number, such as DDL commands. */
export function numberedForms(command: Document): NumberedForms | null {
  if ((command['insert'] ?? command['findAndModify']) !== undefined) return { transaction: false, retryable: true }
  if ((command['update'] ?? command['delete']) === undefined) return null
  const statements: unknown = command['updates'] ?? command['deletes']
  // Statements that may change several documents are not retryable.
  const retryable = !Array.isArray(statements) || statements.every(changesOne)
  return { transaction: !retryable || statementCount(statements) >= transactionFrom, retryable }
}

function changesOne(statement: Document): boolean {
  return !statement['multi'] && statement['limit'] !== 0
}
