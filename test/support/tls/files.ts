import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** A certificate for 127.0.0.1 and localhost with its key, and the authority that issued it. */
export const tlsFiles = {
  server: fileURLToPath(new URL('server.pem', import.meta.url)),
  authority: fileURLToPath(new URL('authority.pem', import.meta.url)),
}

export const tlsPem = {
  server: readFileSync(tlsFiles.server, 'utf8'),
  authority: readFileSync(tlsFiles.authority, 'utf8'),
}
