import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import type { Command } from 'commander'

/** PEM files that options name. Each function ends the parsing with an error that names the option and the file. */

/** @param option that of the certificate; the one of the key has Key for Cert in its name */
export function readCertificate(
  command: Command,
  option: string,
  certFile: string,
  keyFile: string,
): { cert: string; key: string } {
  const [cert, key] = [readPem(command, option, certFile), readPem(command, option.replace(/Cert$/, 'Key'), keyFile)]
  try {
    // Throws when one of them is not there, and when they do not belong together.
    createSecureContext({ cert, key })
    return { cert, key }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return command.error(
      `error: ${option}: ${certFile} must hold a certificate, and ${keyFile} its private key, not encrypted, as PEM (${code})`,
    )
  }
}

export function readPem(command: Command, option: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    return command.error(`error: ${option}: cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
}
