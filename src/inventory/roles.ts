import type { Document } from 'mongodb'
import { type InventoryCluster, isUnauthorized } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { canonical, shellDatabase, shellText, shellValue } from './shell-text.ts'
import { inCanonicalOrder, restrictionsOf } from './users.ts'

/** User-defined roles. */
export const roles: Kind = {
  name: 'role',
  privilege: 'viewRole on every database (in the role userAdminAnyDatabase)',
  read: readRoles,
  commands,
  inOrder,
}

async function readRoles(cluster: InventoryCluster): Promise<Item[]> {
  const items: Item[] = []
  for (const database of await databasesWithRoles(cluster)) {
    const command = { rolesInfo: 1, showPrivileges: true, showAuthenticationRestrictions: true }
    const { roles: found } = await cluster.read(database, command)
    items.push(...(found as Document[]).filter(({ isBuiltin }) => !isBuiltin).map(toItem))
  }
  return items
}

/**
 * Returns the databases whose roles are to be read. One `rolesInfo` command lists the roles of one database only. A
 * database with roles need not have a collection, so it may be missing from `listDatabases`, but `system.roles` names
 * it. For a user who may not read `system.roles`, this function returns only `admin` and the user databases that have
 * collections.
 */
async function databasesWithRoles(cluster: InventoryCluster): Promise<string[]> {
  try {
    const { values } = await cluster.read('admin', { distinct: 'system.roles', key: 'db' })
    return values
  } catch (error) {
    if (!isUnauthorized(error)) throw error
    return ['admin', ...(await cluster.databases())]
  }
}

function toItem({ role, db, privileges = [], roles: inherited, authenticationRestrictions }: Document): Item {
  const granted = (privileges as Document[]).map(({ resource, actions }) => ({
    resource,
    actions: inCanonicalOrder(actions),
  }))
  return {
    name: `${role}@${db}`,
    value: {
      role,
      db,
      privileges: inCanonicalOrder(granted),
      roles: inCanonicalOrder(inherited),
      authenticationRestrictions: restrictionsOf(authenticationRestrictions),
    },
  }
}

/** A role can be created only after the roles from which it inherits. */
function inOrder(items: readonly Item[]): Item[] {
  const left = new Map(items.map((item) => [item.name, item]))
  const ordered: Item[] = []
  const visit = (item: Item): void => {
    if (!left.delete(item.name)) return
    for (const { role, db } of item.value['roles'] as Document[]) {
      const inherited = left.get(`${role}@${db}`)
      if (inherited) visit(inherited)
    }
    ordered.push(item)
  }
  for (const item of items) visit(item)
  return ordered
}

function commands({ how, ours, theirs }: Pair): Command[] {
  if (how === 'extra') {
    const { role, db } = theirs.value
    return [{ text: `${shellDatabase(db)}.dropRole(${shellText(role)})`, review: 'removes a role' }]
  }
  const { role, db, ...rest } = ours.value
  if (how === 'missing') {
    const { authenticationRestrictions, ...fields } = rest
    const given = authenticationRestrictions.length === 0 ? fields : rest
    return [{ text: `${shellDatabase(db)}.createRole(${shellValue({ role, ...given })})` }]
  }
  const changed = Object.entries(rest).filter(([name, value]) => canonical(value) !== canonical(theirs.value[name]))
  const fields = shellValue(Object.fromEntries(changed))
  return [{ text: `${shellDatabase(db)}.updateRole(${shellText(role)}, ${fields})` }]
}
