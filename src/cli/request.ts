import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Access } from './access.ts'

export interface OutgoingRequest {
  method: 'GET' | 'POST' | 'PATCH'
  /** JSON; null for no body. */
  body: string | null
  access?: Access | undefined
  /** Without a timeout the request waits indefinitely, because commands wait for work in progress. */
  timeoutMS?: number | undefined
  /** Accepts every certificate. Use it only for requests that go to this machine and contain no secret. */
  anyCertificate?: boolean
}

/**
 * Sends one request over HTTP or HTTPS. Rejects if there is no answer. It does not use fetch, which cannot trust
 * additional certificate authorities.
 */
export function ask(
  url: string,
  { method, body, access, timeoutMS, anyCertificate }: OutgoingRequest,
): Promise<{ status: number; text: string }> {
  const headers = {
    ...(body === null ? {} : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }),
    ...(access?.token ? { Authorization: `Bearer ${access.token}` } : {}),
  }
  const options = {
    method,
    headers,
    ...(access?.ca ? { ca: access.ca } : {}),
    ...(anyCertificate && { rejectUnauthorized: false }),
    ...(timeoutMS === undefined ? {} : { signal: AbortSignal.timeout(timeoutMS) }),
  }
  const send = url.startsWith('https:') ? requestHttps : requestHttp
  return new Promise((resolve, reject) => {
    const request = send(url, options, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
      response.on('error', reject)
    })
    request.on('error', reject)
    request.end(body ?? undefined)
  })
}
