import { InvalidArgumentError } from 'commander'
import { parseRemap } from '../domain/namespace-remap-rules.ts'
import type { NamespaceRename } from '../domain/start-request.ts'

/** `--remap shop=store`: an element of `namespaceRemap` in the body of start, and a pair of databases for verify. */

/** Collects the values of `--remap`, which may be repeated. */
export function collectRemap(text: string, before: NamespaceRename[] | undefined): NamespaceRename[] {
  const [from = '', to = '', ...more] = text.split('=')
  if (from === '' || to === '' || more.length > 0)
    throw new InvalidArgumentError('It must have the form source=destination, with the names of two databases.')
  if (from.includes('.') || to.includes('.'))
    throw new InvalidArgumentError('Only whole databases can be renamed, and the name of a database has no dot.')
  const all = [...(before ?? []), { from: { database: from }, to: { database: to } }]
  try {
    parseRemap(all)
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
  return all
}
