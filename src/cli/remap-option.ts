import { InvalidArgumentError } from 'commander'
import { parseRemap } from '../domain/namespace-remap-rules.ts'
import type { NamespaceRename } from '../domain/start-request.ts'

/**
 * Parses one value of `--remap` and adds it to the earlier ones. `start` and `check` send the result as `namespaceRemap`.
 * `verify` compares the two databases of each element.
 * @param text such as `shop=store`
 * @param earlier the parsed values of the same option so far
 * @throws InvalidArgumentError if the value, or its combination with the earlier ones, is not valid
 */
export function collectRemap(text: string, earlier: NamespaceRename[] | undefined): NamespaceRename[] {
  const [from = '', to = '', ...more] = text.split('=')
  if (from === '' || to === '' || more.length > 0)
    throw new InvalidArgumentError('It must have the form source=destination, with the names of two databases.')
  if (from.includes('.') || to.includes('.'))
    throw new InvalidArgumentError('Only whole databases can be renamed, and the name of a database contains no dot.')
  const all = [...(earlier ?? []), { from: { database: from }, to: { database: to } }]
  try {
    parseRemap(all)
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
  return all
}
