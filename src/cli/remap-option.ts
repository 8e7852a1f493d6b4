import { InvalidArgumentError } from 'commander'
import { parseRemap } from '../domain/namespace-remap-rules.ts'
import type { NamespaceRename } from '../domain/start-request.ts'

/**
 * `--remap shop=store` or `--remap shop.orders=store.sales`: an element of `namespaceRemap` in the body of start, and a pair of
 * databases or collections for verify.
 */

/** Collects the values of `--remap`, which may be repeated. */
export function collectRemap(text: string, before: NamespaceRename[] | undefined): NamespaceRename[] {
  const [from = '', to = '', ...more] = text.split('=')
  const [named, target] = [nameOf(from), nameOf(to)]
  const areAlike = (named?.collection === undefined) === (target?.collection === undefined)
  if (!named || !target || more.length > 0 || !areAlike)
    throw new InvalidArgumentError(
      'It must have the form source=destination, with the names of two databases or of two collections (db.collection).',
    )
  const all = [...(before ?? []), { from: named, to: target }]
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
