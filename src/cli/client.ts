import { readFile } from 'node:fs/promises'
import { type Answer, instancesTable, outcomeTable, progressTable } from './answers.ts'
import type { ClientRequest } from './client-options.ts'
import { collectionsTable } from './collections.ts'
import { type ExitCode, exitCodeOf, exitCodes } from './exit-codes.ts'
import { findingsText } from './findings.ts'
import { send } from './send.ts'

/** Sends a command to every instance at the same time: commit and reverse wait until all instances have received it. */

/** Width of a table that is written into a file or a pipe. */
const widthWithoutTerminal = 160

/**
 * Prints each instance's reply, as JSON or in one table for all, and returns the exit code. `terminalWidth` is null if
 * the output is not a terminal. JSON is the default then.
 */
export async function runClient(
  request: ClientRequest,
  print: (line: string) => void,
  terminalWidth: number | null = null,
): Promise<ExitCode> {
  const body = await readBody(request.body)
  if ('problem' in body) {
    print(JSON.stringify({ success: false, error: 'InvalidRequest', errorDescription: body.problem }, null, 2))
    return exitCodes.invalid
  }
  const answers = await Promise.all(
    request.urls.map((url) => send(url, request.command, body.json, { access: request.access, query: request.query })),
  )
  if (asTable(request, terminalWidth !== null)) {
    const render = tables[request.command] ?? outcomeTable
    for (const line of render(answers, terminalWidth ?? widthWithoutTerminal)) print(line)
  } else {
    for (const { url, reply } of answers) {
      // The reply of one instance is indented. Several replies take one line each, so that people and scripts can
      // separate them.
      if (answers.length === 1) print(JSON.stringify(reply, null, 2))
      else print(JSON.stringify({ url, ...reply }))
    }
  }
  return exitCodeOf(answers)
}

const tables: Partial<Record<ClientRequest['command'], typeof outcomeTable>> = {
  progress: progressTable,
  check: findingsText,
  instances: instancesTable,
  collections: collectionsTable,
}

function asTable({ command, urls, form }: ClientRequest, onTerminal: boolean): boolean {
  if (form !== undefined) return form === 'table'
  // `mismatches` and `audit` are not printed as tables.
  return (
    onTerminal &&
    command !== 'mismatches' &&
    command !== 'audit' &&
    (command === 'instances' || command === 'collections' || command === 'check' || urls.length > 1)
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
