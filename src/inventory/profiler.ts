import type { InventoryCluster } from './inventory-cluster.ts'
import type { Command, Item, Kind, Pair } from './kind.ts'
import { shellDatabase, shellValue } from './shell-text.ts'

/** The name of the item that has the settings shared by all databases of a server. */
const shared = 'of all databases'

/**
 * The settings of the profiler. They belong to the server that answers, which is the primary or the router, and are not
 * replicated (https://www.mongodb.com/docs/manual/reference/command/profile/).
 */
export const profiler: Kind = {
  name: 'profiler',
  privilege: 'enableProfiler on every database (in the role dbAdminAnyDatabase, and dbAdmin on admin)',
  read: readProfilers,
  commands,
}

async function readProfilers(cluster: InventoryCluster): Promise<Item[]> {
  const items: Item[] = []
  for (const database of ['admin', ...(await cluster.databases())]) {
    const { was: level, slowms, sampleRate, filter } = await cluster.read(database, { profile: -1 })
    if (items.length === 0) items.push({ name: shared, value: { slowms, sampleRate } })
    // A database that is not profiled is left out, so it is equal to one that does not exist.
    if (level !== 0 || filter !== undefined) items.push({ name: `of ${database}`, value: { database, level, filter } })
  }
  return items
}

function commands({ how, ours, theirs }: Pair): Command[] {
  if (how === 'extra') {
    const { database, filter } = theirs.value
    // The server keeps the filter when the level becomes 0.
    const options = filter === undefined ? '' : `, ${shellValue({ filter: 'unset' })}`
    return [{ text: `${shellDatabase(database)}.setProfilingLevel(0${options})` }]
  }
  if (ours.name === shared) {
    // With -1, the server keeps the level and changes only the other settings.
    const { slowms, sampleRate } = ours.value
    return [{ text: `db.adminCommand(${shellValue({ profile: -1, slowms, sampleRate })})` }]
  }
  const { database, level, filter } = ours.value
  const before = how === 'different' ? theirs.value['filter'] : undefined
  // "unset" removes a filter.
  const wanted = filter ?? (before === undefined ? undefined : 'unset')
  const options = wanted === undefined ? '' : `, ${shellValue({ filter: wanted })}`
  return [{ text: `${shellDatabase(database)}.setProfilingLevel(${shellValue(level)}${options})` }]
}
