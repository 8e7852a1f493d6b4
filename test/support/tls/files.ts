import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/**
 * A certificate with its key for 127.0.0.1 and localhost, the authority that issued it, and a self-signed client
 * certificate.
 */
export const tlsFiles = {
  server: fileURLToPath(new URL('server.pem', import.meta.url)),
  authority: fileURLToPath(new URL('authority.pem', import.meta.url)),
  client: fileURLToPath(new URL('client.pem', import.meta.url)),
}

export const tlsPem = {
  server: readFileSync(tlsFiles.server, 'utf8'),
  authority: readFileSync(tlsFiles.authority, 'utf8'),
  client: readFileSync(tlsFiles.client, 'utf8'),
}
