import { InvalidArgumentError } from 'commander'
import type { ShardingEntry } from '../domain/start-request.ts'
import { splitSelected } from './namespace-options.ts'

/** `--shardKey db.collection=field:1,field:hashed`: an entry of `sharding.shardingEntries` in the body of start. */

/** The value of `--shardKey` that means that no collection is sharded. */
export const noShardKeys = 'none'

const form = 'It must have the form db.collection=field:1, or db.collection=field:1,field:hashed'

/** Collects the values of `--shardKey`, which may be repeated. `none` gives an empty list and excludes other values. */
export function collectShardKey(text: string, before: ShardingEntry[] | undefined): ShardingEntry[] {
  if (text === noShardKeys || before?.length === 0) {
    if (before && !(text === noShardKeys && before.length === 0))
      throw new InvalidArgumentError(`${noShardKeys} means that nothing is sharded; give it alone.`)
    return []
  }
  const entry = entryOf(text)
  const { database, collection } = entry
  if (before?.some((one) => one.database === database && one.collection === collection))
    throw new InvalidArgumentError('The collection already has a key; list all fields of its key in one option.')
  return [...(before ?? []), entry]
}

function entryOf(text: string): ShardingEntry {
  const [name = '', key, ...more] = text.split('=')
  if (key === undefined) throw new InvalidArgumentError(`${form}.`)
  if (more.length > 0)
    throw new InvalidArgumentError(`${form}. A name that contains an equals sign can be given with --body only.`)
  const selected = splitSelected(name)
  if (selected === null || selected.collection === null)
    throw new InvalidArgumentError(`${form}; ${JSON.stringify(name)} is not db.collection.`)
  const { database, collection } = selected
  return { database, collection, shardCollection: { key: key.split(',').map(fieldOf) } }
}

function fieldOf(text: string): Record<string, number | 'hashed'> {
  const colon = text.lastIndexOf(':')
  const [field, direction] = [text.slice(0, Math.max(colon, 0)), text.slice(colon + 1)]
  if (field === '') throw new InvalidArgumentError(`${form}; ${JSON.stringify(text)} is not field:1 or field:hashed.`)
  if (direction === 'hashed') return { [field]: 'hashed' }
  if (/^-?\d+$/.test(direction)) return { [field]: Number(direction) }
  throw new InvalidArgumentError(`${form}; the direction of ${JSON.stringify(field)} must be 1 or hashed.`)
}
