import type { Finding } from '../domain/finding.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { ClusterFacts, Privilege } from '../mongo/identity.ts'
import { type Check, problem } from './check.ts'

/**
 * What the users of both connection strings must be allowed to do for exactly what is asked for. The roles of docs/privileges.md are these lists
 * (https://www.mongodb.com/docs/manual/reference/privilege-actions/).
 */
interface Needed {
  /** On the cluster. */
  cluster: string[]
  /** On every database and collection of users. */
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
        'grant the role that docs/privileges.md has for it, or these actions, and send start again',
      ),
    )
  }
  return findings
}

/** Exported for the test that compares the roles of docs/privileges.md with it. */
export function neededOn(
  role: 'source' | 'destination',
  configuration: Pick<StartConfiguration, 'enableUserWriteBlocking' | 'reversible' | 'verification'>,
  facts: Pick<ClusterFacts, 'topology'>,
): Needed {
  const { enableUserWriteBlocking: mode, verification, reversible } = configuration
  if (reversible) {
    // Either may become the other.
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
      // To see whether a dead predecessor's writes have ended.
      'inprog',
      ...(verifies ? appends : []),
      ...(mode === 'none' ? [] : ['setUserWriteBlockMode', 'bypassWriteBlockingMode']),
    ],
    anywhere: [...reads, ...writes, ...(verifies ? ['changeStream'] : [])],
  }
}

/** Renaming within a database takes `renameCollectionSameDB` or, as here, reading, dropping and writing both (measured on 6.0.27). */
const writes = [
  'insert',
  'update',
  'remove',
  'bypassDocumentValidation',
  'createCollection',
  'dropCollection',
  'collMod',
  // To create a capped collection, too.
  'convertToCapped',
  'createIndex',
  'dropIndex',
]
const distributes = ['enableSharding', 'splitChunk', 'moveChunk']

/** A replica set's identity stands in its configuration, a sharded cluster's where whoever may read config finds it. */
function ofTopology({ topology }: Pick<ClusterFacts, 'topology'>, isWritten: boolean): string[] {
  // Commands that name a collection by its UUID ask for useUUID; a router takes none.
  return topology === 'sharded'
    ? ['listDatabases', ...(isWritten ? distributes : [])]
    : ['listDatabases', 'replSetGetConfig', 'useUUID']
}

function allows({ actions }: Privilege, action: string): boolean {
  return actions.includes(action) || actions.includes('anyAction')
}

/** Sharding's actions are granted on namespaces. */
function isOfCluster({ resource }: Privilege): boolean {
  return (
    resource.cluster === true || resource.anyResource === true || (resource.db === '' && resource.collection === '')
  )
}

/** One that is held on some databases only passes here and may fail there; one held in the server's own is none. */
function isOfData({ resource }: Privilege): boolean {
  if (resource.anyResource === true) return true
  if (resource.db === undefined || resource.collection?.startsWith('system.')) return false
  return !['admin', 'local', 'config'].includes(resource.db)
}

function unique(actions: string[]): string[] {
  return [...new Set(actions)]
}
