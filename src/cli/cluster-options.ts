import type { Command } from 'commander'
import { certificateKeyFileOf, checkUri } from '../domain/uri-rules.ts'
import { compressorProblems } from './compressors.ts'
import { openFileProblem } from './secret-file.ts'

/** The connection strings of both clusters. All commands that connect to clusters read them in the same way. */
export function addClusterOptions(command: Command): Command {
  return command
    .option('--cluster0 <uri>', 'connection string of one cluster (or environment variable TANDEM_CLUSTER0)')
    .option('--cluster1 <uri>', 'connection string of the other cluster (or environment variable TANDEM_CLUSTER1)')
}

/**
 * Reads both connection strings; options take precedence over the environment. Ends the parsing with an error if one
 * is missing or not allowed.
 */
export function readClusters(
  command: Command,
  options: { cluster0?: string; cluster1?: string },
  env: Readonly<Record<string, string | undefined>>,
): { cluster0: string; cluster1: string } {
  const problems: string[] = []
  const read = (name: 'cluster0' | 'cluster1'): string => {
    const variable = `TANDEM_${name.toUpperCase()}`
    const uri = options[name] ?? env[variable] ?? ''
    if (uri === '') problems.push(`${name}: is required; give --${name} URI or set ${variable}`)
    else problems.push(...checkUri(name, uri), ...compressorProblems(name, uri), ...keyFileProblems(name, uri))
    return uri
  }
  const clusters = { cluster0: read('cluster0'), cluster1: read('cluster1') }
  if (problems.length > 0) command.error(`error: ${problems.join('\nerror: ')}`)
  return clusters
}

function keyFileProblems(name: string, uri: string): string[] {
  const file = certificateKeyFileOf(uri)
  const open = file && openFileProblem(file)
  return open ? [`${name}: tlsCertificateKeyFile: ${open}`] : []
}
