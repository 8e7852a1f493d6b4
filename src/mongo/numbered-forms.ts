import type { Document } from 'mongodb'
import { statementCount } from './raw-values.ts'

/** The forms in which a write can carry a number (`txnNumber`), so that the server rejects it after a higher one. */
export interface NumberedForms {
  /** A transaction with only this command and its commit. */
  transaction: boolean
  /** The command itself, as a retryable write. */
  retryable: boolean
}

/**
 * The number of statements from which a transaction is cheaper than a retryable write. Retryable updates and deletes
 * take 1.3 to 2 times the CPU of plain ones, because the server writes an oplog entry and a session record for each
 * statement. A transaction needs one oplog entry and one record for all of its statements (docs/bench.md, "Numbered
 * writes"). Retryable inserts are recorded per batch.
 */
const transactionFrom = 8

/** Null for commands that carry no number, such as DDL commands. */
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
