import { InvalidArgumentError } from 'commander'
import { parseRemap } from '../domain/namespace-remap-rules.ts'
import type { NamespaceRename } from '../domain/start-request.ts'

/**
 * Parses one value of `--remap` and adds it to the earlier ones. `start` and `check` send the result as `namespaceRemap`.
 * `verify` compares the two databases or collections of each element.
 * @param text such as `shop=store` or `shop.orders=store.sales`
 * @param earlier the parsed values of the same option so far
 * @throws InvalidArgumentError if the value, or its combination with the earlier ones, is not valid
 */
export function collectRemap(text: string, earlier: NamespaceRename[] | undefined): NamespaceRename[] {
  const [from = '', to = '', ...more] = text.split('=')
  const [named, target] = [nameOf(from), nameOf(to)]
  const areAlike = (named?.collection === undefined) === (target?.collection === undefined)
  if (!named || !target || more.length > 0 || !areAlike)
    throw new InvalidArgumentError(
      'It must have the form source=destination, with the names of two databases or of two collections (db.collection).',
    )
  const all = [...(earlier ?? []), { from: named, to: target }]
  try {
    parseRemap(all)
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
  return all
}

/** Null if a part is empty. Only the name of a collection may contain dots. */
function nameOf(text: string): NamespaceRename['from'] | null {
  const dot = text.indexOf('.')
  const [database, collection] = dot === -1 ? [text] : [text.slice(0, dot), text.slice(dot + 1)]
  return database === '' || collection === '' ? null : { database: database ?? '', ...(collection && { collection }) }
}
