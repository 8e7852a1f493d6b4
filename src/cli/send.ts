import { docsOf } from '../domain/error-details.ts'
import type { Access } from './access.ts'
import type { Answer } from './answers.ts'
import type { ClientRequest } from './client-options.ts'
import { ask } from './request.ts'

/** Sends one command to one instance. */

const unknownRemedy = 'read tandem progress before you send it again'

/** Error names for replies that do not come from an instance. */
export const clientErrors = ['InstanceUnreachable', 'NotTandem'] as const

/** Commands that are sent as GET, and their paths. All others except limit are sent as POST. */
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
  /** If true, the instance passes the command on to all instances. */
  toAll?: boolean
}

/** Sends one request. Never throws: a failed connection is returned in the form of a refusal, without a status. */
export async function send(
  url: string,
  command: ClientRequest['command'],
  json: string,
  { access, timeoutMS, query, toAll = false }: SendOptions = {},
): Promise<Answer> {
  let response: { status: number; text: string }
  const [path, method] = routeOf(command, toAll)
  const changes = method !== 'GET' && command !== 'check'
  try {
    const body = method === 'GET' ? null : json
    const search = query ? `?${new URLSearchParams(query)}` : ''
    response = await ask(`${url}/api/v1/${path}${search}`, { method, body, access, timeoutMS })
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'no connection'
    const remedy = isCertificateRejected(code)
      ? 'its certificate is not trusted: give the authority that issued it with --tlsCAFile, and use a host name that is in the certificate'
      : 'is it running there, and is http or https right?'
    if (!changes || isBeforeConnecting(code)) {
      return unanswered(url, 'InstanceUnreachable', `no instance answers at ${url} (${code}); ${remedy}`)
    }
    const lost = `no answer came from ${url} (${code}), and the command may have been carried out; ${unknownRemedy}`
    return { ...unanswered(url, 'InstanceUnreachable', lost), outcomeUnknown: true }
  }
  const { status } = response
  try {
    const reply: unknown = JSON.parse(response.text)
    if (typeof reply === 'object' && reply !== null && 'success' in reply)
      return { url, reply: reply as Answer['reply'], status }
  } catch {
    // The answer is not JSON, so it is not from tandem. The code below reports that.
  }
  const text = `${url} answered ${status}, but not as tandem does; check --url`
  // A proxy that lost the connection to the instance answers 502 or 504.
  if (!changes || status < 500) return unanswered(url, 'NotTandem', text)
  return { ...unanswered(url, 'NotTandem', `${text}. ${capitalised(unknownRemedy)}`), outcomeUnknown: true }
}

function routeOf(command: ClientRequest['command'], toAll: boolean): [path: string, method: 'GET' | 'POST' | 'PATCH'] {
  const query = queries[command]
  if (query !== undefined) return [query, 'GET']
  if (command === 'limit') return ['limits', 'PATCH']
  return [toAll ? `all/${command}` : command, 'POST']
}

/** True for the codes of errors that precede the request, so that no instance has received it. */
function isBeforeConnecting(code: string): boolean {
  return (
    /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|EACCES|EPERM)$/.test(code) ||
    isCertificateRejected(code)
  )
}

function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** True for the error codes of OpenSSL and Node.js for certificates that are untrusted or issued for another host. */
function isCertificateRejected(code: string): boolean {
  return /CERT|SIGNATURE|ISSUER/.test(code)
}

function unanswered(url: string, error: (typeof clientErrors)[number], errorDescription: string): Answer {
  return { url, reply: { success: false, error, errorDescription, docs: docsOf(error) }, status: null }
}
