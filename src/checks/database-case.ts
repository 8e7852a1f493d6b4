import { isListed, listDatabases } from '../definitions/listing.ts'
import { caseKey } from '../domain/database-case.ts'
import type { Finding } from '../domain/finding.ts'
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
  const wanted = new Map(selected.map((database) => [keyOf(names.onDestination(database)), database]))
  const findings: Finding[] = []
  for (const database of await listDatabases(destination)) {
    const existing = names.onDestination(database)
    const counterpart = wanted.get(keyOf(existing))
    if (counterpart === undefined || names.onDestination(counterpart) === existing) continue
    const remaining = await remainingIn(destination, selection, database)
    if (remaining === undefined) continue
    findings.push(
      problem(
        'DestinationNotEmpty',
        `the destination holds the database ${existing} with ${remaining}, and the name ${existing} differs only in case from ${names.shown(counterpart)}, which is to be synced; a server does not accept both names`,
        renamed.includes(counterpart)
          ? 'drop that database on the destination, or give another name in namespaceRemap'
          : 'drop that database on the destination',
      ),
    )
  }
  return findings
}

/** Returns the name of a collection or view that the sync does not drop, and that therefore keeps the database. */
async function remainingIn(destination: Cluster, selection: Selection, database: string): Promise<string | undefined> {
  const { cursor } = await destination.read(database, { listCollections: 1, nameOnly: true })
  const listed = cursor.firstBatch as { name: string; type: string }[]
  const dropped = new Set(
    await selection.among(
      database,
      listed.filter(({ name }) => isListed(name)),
    ),
  )
  // The server keeps `system.views` after the last view is dropped. `createNamespace` drops such a database.
  return listed.find((one) => one.name !== 'system.views' && !dropped.has(one))?.name
}
