import { readFile } from 'node:fs/promises'
import type { Access } from './access.ts'
import { type Answer, instancesTable, outcomeTable, progressTable } from './answers.ts'
import type { ClientRequest } from './client-options.ts'
import { collectionsTable } from './collections.ts'
import { findingsText, hasError } from './findings.ts'
import { ask } from './request.ts'

/** Sends a command to every instance at the same time: commit and reverse wait until all instances have received it. */

type Reply = Answer['reply']

/** Error names for replies that do not come from an instance. */
export const clientErrors = ['InstanceUnreachable', 'NotTandem'] as const

/** Width of a table that is written into a file or a pipe. */
const widthWithoutTerminal = 160

/**
 * Prints each instance's reply, as JSON or in one table for all, and returns the exit code: 0 if all report success
 * (and check finds no error). `terminalWidth` is null if the output is not a terminal. JSON is the default then.
 */
export async function runClient(
  request: ClientRequest,
  print: (line: string) => void,
  terminalWidth: number | null = null,
): Promise<0 | 1> {
  const body = await readBody(request.body)
  if ('problem' in body) {
    print(JSON.stringify(failed('InvalidRequest', body.problem), null, 2))
    return 1
  }
  const replies = await Promise.all(
    request.urls.map((url) => send(url, request.command, body.json, { access: request.access, query: request.query })),
  )
  const answers = replies.map((reply, index): Answer => ({ url: request.urls[index] as string, reply }))
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
  return replies.every((reply) => reply['success'] === true && !hasError(reply)) ? 0 : 1
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

/** Commands that are sent as GET, and their paths. All others except limit are sent as `POST /api/v1/<command>`. */
const queries: Partial<Record<ClientRequest['command'], string>> = {
  progress: 'progress',
  instances: 'instances',
  collections: 'collections',
  limits: 'limits',
  mismatches: 'verification/mismatches',
  audit: 'audit',
}

/** Sends one request. Never throws: a failed connection is returned in the form of a refusal. */
export async function send(
  url: string,
  command: ClientRequest['command'],
  json: string,
  {
    access,
    timeoutMS,
    query,
  }: { access?: Access | undefined; timeoutMS?: number; query?: ClientRequest['query'] } = {},
): Promise<Reply> {
  let response: { status: number; text: string }
  try {
    const [path, method] = routeOf(command)
    const body = method === 'GET' ? null : json
    const search = query ? `?${new URLSearchParams(query)}` : ''
    response = await ask(`${url}/api/v1/${path}${search}`, { method, body, access, timeoutMS })
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'no connection'
    const remedy = isDistrust(code)
      ? 'its certificate is not trusted: give the authority that issued it with --tlsCAFile, and use a host name that is in the certificate'
      : 'is it running there, and is http or https right?'
    return failed('InstanceUnreachable', `no instance answers at ${url} (${code}); ${remedy}`)
  }
  try {
    const reply: unknown = JSON.parse(response.text)
    if (typeof reply === 'object' && reply !== null && 'success' in reply) return reply as Reply
  } catch {
    // Not JSON, so the answer is not from tandem. The return below says so.
  }
  return failed('NotTandem', `${url} answered ${response.status}, but not as tandem does; check --url`)
}

function routeOf(command: ClientRequest['command']): [path: string, method: 'GET' | 'POST' | 'PATCH'] {
  const query = queries[command]
  if (query !== undefined) return [query, 'GET']
  return command === 'limit' ? ['limits', 'PATCH'] : [command, 'POST']
}

/** True for OpenSSL's error codes of untrusted certificates. */
function isDistrust(code: string): boolean {
  return /CERT|SIGNATURE|ISSUER/.test(code)
}

function failed(error: 'InvalidRequest' | (typeof clientErrors)[number], errorDescription: string): Reply {
  return { success: false, error, errorDescription }
}
