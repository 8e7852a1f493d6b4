import { isListed, listDatabases, listExistingDatabases } from '../definitions/listing.ts'
import { caseKey } from '../domain/database-case.ts'
import type { Finding } from '../domain/finding.ts'
import { isUserDatabase, namespace, splitNamespace } from '../domain/namespace.ts'
import type { NamespaceRemap } from '../domain/namespace-remap.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Selection } from '../mongo/selection.ts'
import { type Check, problem } from './check.ts'

/**
 * Finds databases of the destination whose names differ only in case from those of databases to be synced. A server accepts only
 * one of the two names. A database in which nothing would remain is no problem, because the sync drops it.
 */
export const checkDatabaseCase: Check = async ({ configuration, source, destination, selection }) => {
  const { names } = destination
  // A renamed database need not exist on the source yet.
  const renamed = (configuration.namespaceRemap ?? []).map(({ from }) => from.database)
  const selected = await selection.databases(new Set([...(await listDatabases(source)), ...renamed]))
  const keyOf = (database: string): string => caseKey(destination, database)
  /** Each database that is to be created, as it is written on the destination, with one of its names on the source. */
  const wanted = new Map(
    selected.map((database) => [keyOf(names.onDestination(database)), wantedFrom(names, database)]),
  )
  for (const [from, to] of names.placed) {
    const { database, collection } = splitNamespace(from)
    if (!(await selection.selects(database, collection))) continue
    wanted.set(keyOf(splitNamespace(to).database), {
      there: splitNamespace(to).database,
      shown: names.shown(from),
      database,
    })
  }
  const findings: Finding[] = []
  for (const existing of await listExistingDatabases(destination)) {
    const counterpart = isUserDatabase(existing) ? wanted.get(keyOf(existing)) : undefined
    if (counterpart === undefined || counterpart.there === existing) continue
    const remaining = await remainingIn(destination, selection, existing)
    if (remaining === undefined) continue
    findings.push(
      problem(
        'DestinationNotEmpty',
        `the destination holds the database ${existing} with ${remaining}, and the name ${existing} differs only in case from ${counterpart.shown}, which is to be synced; a server does not accept both names`,
        renamed.includes(counterpart.database)
          ? 'drop that database on the destination, or give another name in namespaceRemap'
          : 'drop that database on the destination',
      ),
    )
  }
  return findings
}

function wantedFrom(names: NamespaceRemap, database: string): { there: string; shown: string; database: string } {
  return { there: names.onDestination(database), shown: names.shown(database), database }
}

/**
 * Returns the name of a collection or view that the sync does not drop, and that therefore keeps the database.
 * @param existing the name of the database on the destination
 */
async function remainingIn(destination: Cluster, selection: Selection, existing: string): Promise<string | undefined> {
  const { names } = destination
  const { cursor } = await destination.read(names.onSource(existing), { listCollections: 1, nameOnly: true })
  const listed = cursor.firstBatch as { name: string; type: string }[]
  const bySource = new Map<string, { name: string; type: string; one: object }[]>()
  for (const one of listed.filter(({ name }) => isListed(name))) {
    const { database, collection } = splitNamespace(names.namespaceOnSource(namespace(existing, one.name)))
    const found = bySource.get(database) ?? []
    found.push({ name: collection, type: one.type, one })
    bySource.set(database, found)
  }
  const selected = await selection.amongAll(bySource)
  const dropped = new Set([...selected.values()].flat().map(({ one }) => one))
  // The server keeps `system.views` after the last view is dropped. `createNamespace` drops such a database.
  return listed.find((one) => one.name !== 'system.views' && !dropped.has(one))?.name
}
