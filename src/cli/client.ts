import { readFile } from 'node:fs/promises'
import { printable } from '../domain/printable.ts'
import { instancesTable, ofEachInstance, outcomeTable, progressTable } from './answers.ts'
import type { ClientRequest } from './client-options.ts'
import { collectionsTable } from './collections.ts'
import { announcement, type Confirm } from './confirm.ts'
import { errorLine } from './error-line.ts'
import { type ExitCode, exitCodeOf, exitCodes } from './exit-codes.ts'
import { findingsText } from './findings.ts'
import { send } from './send.ts'

/**
 * Sends a command to all given addresses at the same time, because a commit or a reversal begins only when every live
 * instance has received it.
 */

/** Width of a table that is written into a file or a pipe. */
const widthWithoutTerminal = 160

export interface ClientOutput {
  /** Prints what the instances answer. */
  out: (line: string) => void
  /** Prints messages of the client itself. They are kept apart, so that a script reads only answers from `out`. */
  err: (line: string) => void
  /** Width of the terminal in columns; null if `out` does not print to a terminal. JSON is then the default. */
  width: number | null
  /** Asks the operator to confirm `commit` or `reverse`. Absent without a terminal. */
  confirm?: Confirm
}

/** Prints each instance's reply, as JSON or in one table for all, and returns the exit code. */
export async function runClient(request: ClientRequest, output: ClientOutput): Promise<ExitCode> {
  const { out, err, width } = output
  const body = await readBody(request.body)
  if ('problem' in body) {
    err(`error: ${printable(body.problem)}`)
    return exitCodes.invalid
  }
  if (!(await isConfirmed(request, output))) {
    err('not confirmed; the command was not sent')
    return exitCodes.negative
  }
  const { urls, command, access, query } = request
  const toAll = request.all === true
  const all = await Promise.all(urls.map((url) => send(url, command, body.json, { access, query, toAll })))
  const ofEach = toAll ? ofEachInstance(all) : all
  const answers = all.filter(({ status }) => status !== null)
  if (answers.length > 0 && asTable(request, width !== null)) {
    const render = tables[command] ?? outcomeTable
    for (const line of render(ofEach, width ?? widthWithoutTerminal)) out(line)
  } else {
    for (const { url, reply } of answers) {
      // The reply of one instance is indented. Several replies take one line each, so that people and scripts can
      // separate them.
      if (urls.length === 1) out(JSON.stringify(reply, null, 2))
      else out(JSON.stringify({ url, ...reply }))
    }
  }
  for (const { reply, status } of all) {
    if (status === null) err(printable(`error: ${errorLine(reply)}`))
  }
  return exitCodeOf(ofEach, request.failOn)
}

async function isConfirmed(request: ClientRequest, { confirm }: ClientOutput): Promise<boolean> {
  if (!request.confirms || !confirm) return true
  // Asks even if no instance answers now, because one may answer when the command arrives.
  return confirm(await announcement(request))
}

const tables: Partial<Record<ClientRequest['command'], typeof outcomeTable>> = {
  progress: progressTable,
  check: findingsText,
  instances: instancesTable,
  collections: collectionsTable,
}

function asTable({ command, urls, all, form }: ClientRequest, onTerminal: boolean): boolean {
  if (form !== undefined) return form === 'table'
  // `mismatches` and `audit` are not printed as tables.
  return (
    onTerminal &&
    command !== 'mismatches' &&
    command !== 'audit' &&
    (all === true || command === 'instances' || command === 'collections' || command === 'check' || urls.length > 1)
  )
}

async function readBody(body: ClientRequest['body']): Promise<{ json: string } | { problem: string }> {
  if ('inline' in body) return { json: JSON.stringify(body.inline) }
  try {
    const json = await readFile(body.file, 'utf8')
    JSON.parse(json)
    return { json }
  } catch (error) {
    if (error instanceof SyntaxError) return { problem: `--body: ${body.file} does not hold valid JSON` }
    return { problem: `--body: cannot read ${body.file}: ${(error as NodeJS.ErrnoException).code}` }
  }
}
