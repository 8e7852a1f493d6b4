import type { Document } from 'mongodb'
import type { InventoryCluster } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { canonical, shellDatabase, shellText, shellValue } from './shell-text.ts'

/** The database of users that an external service authenticates. They have no password. */
const external = '$external'
/** The largest number of users in one command. */
const usersAtOnce = 200

/** Users with their roles. No credentials are read, so mongosh asks for a password when it creates a user. */
export const users: Kind = {
  name: 'user',
  privilege: 'viewUser on every database (in the role userAdminAnyDatabase)',
  read: readUsers,
  commands,
}

async function readUsers(cluster: InventoryCluster): Promise<Item[]> {
  const { users: listed } = await cluster.read('admin', { usersInfo: { forAllDBs: true } })
  const items: Item[] = []
  const names = (listed as Document[]).map(({ user, db }) => ({ user, db }))
  for (let from = 0; from < names.length; from += usersAtOnce) {
    // The server returns the restrictions only of users that the command names.
    const command = { usersInfo: names.slice(from, from + usersAtOnce), showAuthenticationRestrictions: true }
    const { users: found } = await cluster.read('admin', command)
    items.push(...(found as Document[]).map(toItem))
  }
  return items
}

function toItem({ user, db, roles, customData, mechanisms, authenticationRestrictions }: Document): Item {
  return {
    name: `${user}@${db}`,
    value: {
      user,
      db,
      roles: inCanonicalOrder(roles),
      ...(customData === undefined ? {} : { customData }),
      ...(db === external ? {} : { mechanisms: inCanonicalOrder(mechanisms) }),
      authenticationRestrictions: restrictionsOf(authenticationRestrictions),
    },
  }
}

/** Sorts a list whose order has no meaning, so that two lists can be compared. */
export function inCanonicalOrder(values: unknown[] = []): unknown[] {
  return [...values].sort((one, other) => (canonical(one) < canonical(other) ? -1 : 1))
}

/** Flattens the nested arrays in which the server returns the restrictions, and sorts them. */
export function restrictionsOf(restrictions: unknown): unknown[] {
  return inCanonicalOrder(Array.isArray(restrictions) ? restrictions.flat(2) : [])
}

function commands({ how, ours, theirs }: Pair): Command[] {
  if (how === 'extra') {
    const { user, db } = theirs.value
    return [{ text: `${shellDatabase(db)}.dropUser(${shellText(user)})`, review: 'removes a user' }]
  }
  const { user, db, ...rest } = ours.value
  if (how === 'missing') {
    const fields = { user, ...withoutEmpty(rest) }
    return [{ text: `${shellDatabase(db)}.createUser(${withPassword(fields, db)})` }]
  }
  const changed = Object.fromEntries(
    Object.entries({ customData: {}, ...rest }).filter(
      ([name, value]) => canonical(value) !== canonical(theirs.value[name] ?? {}),
    ),
  )
  // The server needs the password to derive the credentials of another mechanism.
  const fields = 'mechanisms' in changed ? withPassword(changed, db) : shellValue(changed)
  return [{ text: `${shellDatabase(db)}.updateUser(${shellText(user)}, ${fields})` }]
}

function withoutEmpty(fields: Document): Document {
  return Object.fromEntries(Object.entries(fields).filter(([name, value]) => name === 'roles' || value.length !== 0))
}

/** `passwordPrompt()` of mongosh asks for the password when the command runs. */
function withPassword(fields: Document, db: string): string {
  return db === external ? shellValue(fields) : `Object.assign(${shellValue(fields)}, { pwd: passwordPrompt() })`
}
