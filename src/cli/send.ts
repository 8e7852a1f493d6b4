import type { Access } from './access.ts'
import type { Answer } from './answers.ts'
import type { ClientRequest } from './client-options.ts'
import { ask } from './request.ts'

/** Sends one command to one instance. */

/** Error names for replies that do not come from an instance. */
export const clientErrors = ['InstanceUnreachable', 'NotTandem'] as const

/** Commands that are sent as GET, and their paths. All others except limit are sent as `POST /api/v1/<command>`. */
const queries: Partial<Record<ClientRequest['command'], string>> = {
  progress: 'progress',
  instances: 'instances',
  collections: 'collections',
  limits: 'limits',
  mismatches: 'verification/mismatches',
  audit: 'audit',
}

interface SendOptions {
  access?: Access | undefined
  timeoutMS?: number
  query?: ClientRequest['query']
}

/** Sends one request. Never throws: a failed connection is returned in the form of a refusal, without a status. */
export async function send(
  url: string,
  command: ClientRequest['command'],
  json: string,
  { access, timeoutMS, query }: SendOptions = {},
): Promise<Answer> {
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
    return unanswered(url, 'InstanceUnreachable', `no instance answers at ${url} (${code}); ${remedy}`)
  }
  const { status, text } = response
  try {
    const reply: unknown = JSON.parse(text)
    if (typeof reply === 'object' && reply !== null && 'success' in reply)
      return { url, reply: reply as Answer['reply'], status }
  } catch {
    // Not JSON, so the answer is not from tandem. The return below says so.
  }
  return unanswered(url, 'NotTandem', `${url} answered ${status}, but not as tandem does; check --url`)
}

function routeOf(command: ClientRequest['command']): [path: string, method: 'GET' | 'POST' | 'PATCH'] {
  const query = queries[command]
  if (query !== undefined) return [query, 'GET']
  return command === 'limit' ? ['limits', 'PATCH'] : [command, 'POST']
}

/** True for the error codes of OpenSSL and Node.js for certificates that are untrusted or issued for another host. */
function isDistrust(code: string): boolean {
  return /CERT|SIGNATURE|ISSUER/.test(code)
}

function unanswered(url: string, error: (typeof clientErrors)[number], errorDescription: string): Answer {
  return { url, reply: { success: false, error, errorDescription }, status: null }
}
