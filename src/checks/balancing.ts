import { isUserDatabase, splitNamespace } from '../domain/namespace.ts'
import { fieldNamed, isTruthy, type RawFields, readFields, stringOf, type TypedValue } from '../domain/raw-bson.ts'
import { readConfig } from '../mongo/config-database.ts'
import type { ClusterFacts } from '../mongo/identity.ts'
import { type Check, ifAllowed } from './check.ts'

/**
 * The fields of `config.collections` that tandem does not copy, each with a function that returns true if the source's
 * value must be reported. `configureCollectionBalancing` sets these fields
 * (https://www.mongodb.com/docs/manual/reference/command/configureCollectionBalancing/).
 */
const settings: Settings = {
  maxChunkSizeBytes: (value) => value !== undefined,
  enableAutoMerge: isOff,
}
/** Maximum number of collections that a message names. */
const namedMax = 5

/** A commit copies this setting if tandem's user on the destination may write it. */
const noBalance = { noBalance: isTruthy }
type Settings = Record<string, (value: TypedValue | undefined) => boolean>

/** Finds collections of a sharded source whose balancer settings are not copied. */
export const checkBalancing: Check = async ({ source, destination, selection, facts }) => {
  if (!source.sharded || !destination.sharded) return []
  const isCopied = maySetNoBalance(facts.destination)
  const checked = isCopied ? settings : { ...settings, ...noBalance }
  const found =
    (await ifAllowed(
      readConfig(source, 'collections', { $or: Object.keys(checked).map((name) => ({ [name]: { $exists: true } })) }),
    )) ?? []
  const named: string[] = []
  for (const bytes of found) {
    const fields = readFields(bytes)
    const name = stringOf(fieldNamed(fields, '_id')) ?? ''
    const { database, collection } = splitNamespace(name)
    if (!isUserDatabase(database) || !(await selection.selects(database, collection))) continue
    const set = settingsOf(fields, checked)
    if (set !== '') named.push(`${name} (${set})`)
  }
  if (named.length === 0) return []
  const more = named.length > namedMax ? ` and ${named.length - namedMax} more` : ''
  return [
    {
      severity: 'warning',
      name: 'BalancerSettingsNotCopied',
      message: `these balancer settings of individual source collections are not copied: ${named.slice(0, namedMax).join(', ')}${more}`,
      remedy:
        'set them on the destination after COMMITTED, with configureCollectionBalancing' +
        (isCopied
          ? ''
          : '; to have noBalance copied, grant update on config.collections on the destination before the commit'),
    },
  ]
}

/**
 * True if the user may write `noBalance` into `config.collections`. Privileges on all databases do not include `config`
 * (`buildResourceSearchList` in src/mongo/db/auth/authorization_session_impl.cpp of the server's source).
 */
export function maySetNoBalance({
  authenticated,
  privileges,
}: Pick<ClusterFacts, 'authenticated' | 'privileges'>): boolean {
  if (!authenticated) return true
  return privileges.some(({ resource: { db, collection, anyResource }, actions }) => {
    const isIncluded =
      anyResource === true ||
      (db === 'config' && (collection === '' || collection === 'collections')) ||
      (db === '' && collection === 'collections')
    return isIncluded && (actions.includes('update') || actions.includes('anyAction'))
  })
}

function settingsOf(fields: RawFields, checked: Settings): string {
  return Object.entries(checked)
    .filter(([name, isSet]) => isSet(fieldNamed(fields, name)))
    .map(([name]) => name)
    .join(', ')
}

function isOff(value: TypedValue | undefined): boolean {
  return value !== undefined && !isTruthy(value)
}
