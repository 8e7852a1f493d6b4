import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { fieldNamed, isTruthy, type RawFields, readFields, stringOf, type TypedValue } from '../domain/raw-bson.ts'
import { readConfig } from '../mongo/config-database.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * The fields of `config.collections` that tandem does not copy. `permitMigrations: false` is set by the command
 * `setAllowMigrations`, and the others by `configureCollectionBalancing`
 * (https://www.mongodb.com/docs/manual/reference/command/configureCollectionBalancing/).
 */
const settings: Record<string, (value: TypedValue | undefined) => boolean> = {
  permitMigrations: isOff,
  maxChunkSizeBytes: (value) => value !== undefined,
  enableAutoMerge: isOff,
}
/** A message names no more collections than this. */
const namedMax = 5

/** Finds collections of a sharded source whose settings of the balancer are not copied. */
export const checkBalancing: Check = async ({ source, destination, selection }) => {
  if (!source.sharded || !destination.sharded) return []
  const found =
    (await ifAllowed(
      readConfig(source, 'collections', { $or: Object.keys(settings).map((name) => ({ [name]: { $exists: true } })) }),
    )) ?? []
  const named: string[] = []
  for (const bytes of found) {
    const fields = readFields(bytes)
    const name = stringOf(fieldNamed(fields, '_id')) ?? ''
    const { database, collection } = splitNamespace(name)
    if (!isUserDatabase(database) || !(await selection.selects(database, collection))) continue
    const set = settingsOf(fields)
    if (set !== '') named.push(`${name} (${set})`)
  }
  if (named.length === 0) return []
  const more = named.length > namedMax ? ` and ${named.length - namedMax} more` : ''
  return [
    {
      severity: 'warning',
      name: 'BalancerSettingsNotCopied',
      message: `these settings of the balancer for single collections of the source are not copied: ${named.slice(0, namedMax).join(', ')}${more}`,
      remedy:
        'set them on the destination after COMMITTED, with configureCollectionBalancing, or setAllowMigrations for permitMigrations',
    },
  ]
}

function settingsOf(fields: RawFields): string {
  return Object.entries(settings)
    .filter(([name, isSet]) => isSet(fieldNamed(fields, name)))
    .map(([name]) => name)
    .join(', ')
}

function isOff(value: TypedValue | undefined): boolean {
  return value !== undefined && !isTruthy(value)
}
