import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import type { Command } from 'commander'
import { openFileProblem } from './secret-file.ts'

/**
 * Reads the PEM files that options name. Each function ends the parsing with an error that names the option and the
 * file.
 */

/**
 * @param option name of the certificate's option; the key's option has Key instead of Cert in its name
 * @param keyFile the same as `certFile` if one file contains both; users other than its owner and group may not read
 * it
 */
export function readCertificate(
  command: Command,
  option: string,
  certFile: string,
  keyFile: string,
): { cert: string; key: string } {
  const keyOption = option.replace(/Cert$/, 'Key')
  const [cert, key] = [readPem(command, option, certFile), readPem(command, keyOption, keyFile)]
  try {
    // Throws if one of them is missing or they do not belong together.
    createSecureContext({ cert, key })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return command.error(
      `error: ${option}: ${certFile} must hold a certificate, and ${keyFile} its private key (unencrypted), both as PEM (${code})`,
    )
  }
  const open = openFileProblem(keyFile)
  if (open !== null) command.error(`error: ${keyFile === certFile ? option : keyOption}: ${open}`)
  return { cert, key }
}

export function readPem(command: Command, option: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    return command.error(`error: ${option}: cannot read ${file}: ${(error as NodeJS.ErrnoException).code}`)
  }
}
