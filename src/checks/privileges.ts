import type { Finding } from '../domain/finding.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { ClusterFacts, Privilege } from '../mongo/identity.ts'
import { type Check, problem } from './check.ts'

/**
 * The privileges that the user in one connection string needs for this start. The roles in docs/privileges.md contain
 * the same actions (https://www.mongodb.com/docs/manual/reference/privilege-actions/).
 */
interface Needed {
  /** Actions on the cluster. */
  cluster: string[]
  /** Actions on every user database and collection. */
  anywhere: string[]
}

export const checkPrivileges: Check = ({ configuration, facts }) => {
  const findings: Finding[] = []
  for (const role of ['source', 'destination'] as const) {
    const own = facts[role]
    if (!own.authenticated) continue
    const { cluster, anywhere } = neededOn(role, configuration, own)
    const missing = [
      ...cluster.filter((action) => !own.privileges.some((one) => allows(one, action) && isOfCluster(one))),
      ...anywhere.filter((action) => !own.privileges.some((one) => allows(one, action) && isOfData(one))),
    ]
    if (missing.length === 0) continue
    findings.push(
      problem(
        'MissingPrivileges',
        `the user on the ${role} lacks privileges: ${missing.join(', ')}`,
        'grant the role that docs/privileges.md lists, or these actions, then send start again',
      ),
    )
  }
  return findings
}

/** Exported for the test that compares it with the roles of docs/privileges.md. */
export function neededOn(
  role: 'source' | 'destination',
  configuration: Pick<StartConfiguration, 'enableUserWriteBlocking' | 'reversible'> & {
    verification: { enabled: boolean }
  },
  facts: Pick<ClusterFacts, 'topology'>,
): Needed {
  const { enableUserWriteBlocking: mode, verification, reversible } = configuration
  if (reversible) {
    // Each cluster may be the source or the destination at some time.
    const both = [ofSource(mode, facts), ofDestination(mode, verification.enabled, facts)]
    return {
      cluster: unique([...both.flatMap(({ cluster }) => cluster), 'serverStatus', ...appends]),
      anywhere: unique([...both.flatMap(({ anywhere }) => anywhere), 'changeStream']),
    }
  }
  return role === 'source' ? ofSource(mode, facts) : ofDestination(mode, verification.enabled, facts)
}

const appends = ['appendOplogNote']
const reads = ['find', 'listCollections', 'listIndexes', 'collStats']

function ofSource(mode: StartConfiguration['enableUserWriteBlocking'], facts: Pick<ClusterFacts, 'topology'>): Needed {
  return {
    cluster: [
      ...ofTopology(facts, false),
      ...appends,
      ...(mode === 'sourceAndDestination' ? ['setUserWriteBlockMode'] : []),
    ],
    anywhere: [...reads, 'changeStream'],
  }
}

function ofDestination(
  mode: StartConfiguration['enableUserWriteBlocking'],
  verifies: boolean,
  facts: Pick<ClusterFacts, 'topology'>,
): Needed {
  return {
    cluster: [
      ...ofTopology(facts, true),
      // Needed to list the running operations, which may include writes of an instance whose lease has expired.
      'inprog',
      ...(verifies ? appends : []),
      ...(mode === 'none' ? [] : ['setUserWriteBlockMode', 'bypassWriteBlockingMode']),
    ],
    anywhere: [
      ...reads,
      ...writes,
      ...(verifies ? ['changeStream'] : []),
      // Through a router, only $indexStats shows the indexes of each shard.
      ...(facts.topology === 'sharded' ? ['indexStats'] : []),
    ],
  }
}

/**
 * Actions for writing. A rename within a database needs `renameCollectionSameDB` or, as here, the privileges to read,
 * drop and write both collections (measured on 6.0.27).
 */
const writes = [
  'insert',
  'update',
  'remove',
  'bypassDocumentValidation',
  'createCollection',
  'dropCollection',
  'collMod',
  // Also needed to create a capped collection.
  'convertToCapped',
  'createIndex',
  'dropIndex',
]
const distributes = ['enableSharding', 'splitChunk', 'moveChunk']

/**
 * Actions that depend on the topology. The identity of a replica set is in its configuration. The identity of a sharded
 * cluster is in the config database, which its users can read.
 */
function ofTopology({ topology }: Pick<ClusterFacts, 'topology'>, isWritten: boolean): string[] {
  // Commands that take a UUID in place of the collection's name need useUUID. A router does not support such commands.
  return topology === 'sharded'
    ? ['listDatabases', ...(isWritten ? distributes : [])]
    : ['listDatabases', 'replSetGetConfig', 'useUUID']
}

function allows({ actions }: Privilege, action: string): boolean {
  return actions.includes(action) || actions.includes('anyAction')
}

/** True if the privilege is for the cluster or for all namespaces, because sharding actions are granted on namespaces. */
function isOfCluster({ resource }: Privilege): boolean {
  return (
    resource.cluster === true || resource.anyResource === true || (resource.db === '' && resource.collection === '')
  )
}

/**
 * True if the privilege is for user data. A privilege on only some databases is accepted here, although it may not be
 * enough for the sync. A privilege on the server's own databases does not count.
 */
function isOfData({ resource }: Privilege): boolean {
  if (resource.anyResource === true) return true
  if (resource.db === undefined || resource.collection?.startsWith('system.')) return false
  return !['admin', 'local', 'config'].includes(resource.db)
}

function unique(actions: string[]): string[] {
  return [...new Set(actions)]
}
