import { readFile } from 'node:fs/promises'
import type { ClientRequest } from './cli-client-options.ts'

/** Sends a command to every instance at the same time: commit and reverse wait until all of them have got it. */

type Reply = Record<string, unknown>

/** Prints each instance's reply as JSON and returns the exit code: 0 when all of them report success. */
export async function runClient(request: ClientRequest, print: (line: string) => void): Promise<0 | 1> {
  const body = await readBody(request.body)
  if ('problem' in body) {
    print(JSON.stringify(failed('InvalidRequest', body.problem), null, 2))
    return 1
  }
  const replies = await Promise.all(request.urls.map((url) => send(url, request.command, body.json)))
  for (const [index, reply] of replies.entries()) {
    // One instance: for a person to read. Several: a line each, so that both eyes and scripts can tell them apart.
    if (replies.length === 1) print(JSON.stringify(reply, null, 2))
    else print(JSON.stringify({ url: request.urls[index], ...reply }))
  }
  return replies.every((reply) => reply['success'] === true) ? 0 : 1
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

/** Commands that ask, and where. All others are sent as `POST /api/v1/<command>`. */
const queries: Partial<Record<ClientRequest['command'], string>> = {
  progress: 'progress',
  mismatches: 'verification/mismatches',
}

async function send(url: string, command: ClientRequest['command'], json: string): Promise<Reply> {
  let response: Response
  try {
    response = await fetch(
      `${url}/api/v1/${queries[command] ?? command}`,
      command in queries ? {} : { method: 'POST', body: json, headers: { 'Content-Type': 'application/json' } },
    )
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
    const code = (cause as NodeJS.ErrnoException).code ?? 'no connection'
    return failed('InstanceUnreachable', `no instance answers at ${url} (${code}); is it running there?`)
  }
  try {
    const reply: unknown = await response.json()
    if (typeof reply === 'object' && reply !== null && 'success' in reply) return reply as Reply
  } catch {
    // Falls through: not an answer of ours.
  }
  return failed('NotTandem', `${url} answered ${response.status}, but not as tandem does; check --url`)
}

function failed(error: string, errorDescription: string): Reply {
  return { success: false, error, errorDescription }
}
