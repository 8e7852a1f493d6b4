import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { failureBody } from './answers.ts'

/**
 * Answers input that is not a valid request (late, malformed, or with an oversized header) in the API's error format. The
 * answer has no body if the client has sent nothing, or has sent a HEAD.
 */

/** The fields that Node adds to a parse error: the packet, and how many of its bytes were parsed. */
interface ClientError extends NodeJS.ErrnoException {
  rawPacket?: Buffer
  bytesParsed?: number
}

const answers: Record<string, readonly [status: string, description: string]> = {
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'the request was not sent in time'],
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'the request header is too large'],
}
const malformed = ['400 Bad Request', 'the request is not valid HTTP'] as const

export const badRequest = (errorDescription: string) => failureBody('InvalidRequest', errorDescription)

export function answerBadClients(server: Server): void {
  const latest = new WeakMap<Socket, { request: IncomingMessage; response: ServerResponse }>()
  server.on('request', (request, response) => latest.set(request.socket, { request, response }))
  server.on('clientError', (error: ClientError, socket: Socket) => {
    const known = latest.get(socket)
    // True if the latest request, or the answer to it, is not complete.
    const isOpen = known !== undefined && !(known.request.complete && known.response.writableEnded)
    if (error.code === 'ECONNRESET' || !socket.writable || (isOpen && known.response.headersSent)) {
      socket.destroy()
      return
    }
    const [status, description] = answers[error.code ?? ''] ?? malformed
    const body = JSON.stringify(badRequest(description))
    const head = `HTTP/1.1 ${status}\r\nConnection: close\r\n`
    const method = isOpen ? known.request.method : methodOf(error)
    // A client that has sent nothing yet may be about to send a HEAD.
    if (socket.bytesRead === 0) socket.end(`${head}Content-Length: 0\r\n\r\n`)
    else {
      const headers = `${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n`
      // After an answer to HEAD, a client would read a body as the next answer.
      socket.end(method === 'HEAD' ? headers : headers + body)
    }
  })
}

/**
 * Returns the method of the invalid request. It is the last request that begins in the packet. Returns undefined if the
 * request began in an earlier packet.
 */
function methodOf({ rawPacket, bytesParsed }: ClientError): string | undefined {
  if (!rawPacket) return undefined
  const text = rawPacket.toString('latin1', 0, bytesParsed ?? rawPacket.length)
  const previousEnd = text.lastIndexOf('\r\n\r\n')
  return /^[A-Z-]+(?= )/.exec(text.slice(previousEnd === -1 ? 0 : previousEnd + 4))?.[0]
}
