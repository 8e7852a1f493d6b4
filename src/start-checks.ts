import { refuseExpiry, refuseUnsupported } from './apply/reconcile-definitions.ts'
import { FatalError, RefusedError, StoppedError } from './domain/errors.ts'
import { isUserCollection, metadataDatabase, namespace } from './domain/namespace.ts'
import type { StartConfiguration } from './domain/start-request.ts'
import { refuseContradictions, refuseIrreversible } from './domain/start-rules.ts'
import type { Cluster } from './mongo/cluster.ts'
import { code, codeOf, isTransient, toFatal } from './mongo/errors.ts'
import { type ClusterFacts, readFacts } from './mongo/identity.ts'
import { listCollections, listDatabases, listIndexes } from './mongo/listing.ts'
import { availableMemory, refuseLittleMemory } from './verify/memory.ts'

export interface CheckedStart {
  source: ClusterFacts
  destination: ClusterFacts
}

/** Everything that can refuse a start. Reads only; throws RefusedError naming the reason and the remedy. */
export async function checkStart(
  configuration: StartConfiguration,
  source: Cluster,
  destination: Cluster,
): Promise<CheckedStart> {
  refuseContradictions(configuration)
  try {
    const facts = { source: await readFacts(source), destination: await readFacts(destination) }
    refuseMissingPrivileges(configuration, facts)
    refuseTopology(configuration, facts)
    refuseVersions(configuration, facts)
    refuseIrreversible(configuration, facts.source, facts.destination)
    refuseNotYet(configuration)
    await refuseOldPatch(destination, facts.destination.version)
    await refuseCollections(source)
    await refuseVerification(configuration, source)
    await refuseNonEmpty(destination)
    return facts
  } catch (error) {
    throw asRefusal(error)
  }
}

/** What is known to be asked for and would fail later. An action held on some resource only passes here and may fail there. */
function refuseMissingPrivileges(configuration: StartConfiguration, { source, destination }: CheckedStart): void {
  const blocking = ['setUserWriteBlockMode', 'bypassWriteBlockingMode']
  const mode = configuration.enableUserWriteBlocking
  const ofSource = [
    'replSetGetConfig',
    'find',
    'changeStream',
    'appendOplogNote',
    ...(mode === 'sourceAndDestination' ? ['setUserWriteBlockMode'] : []),
  ]
  const ofDestination = [
    'replSetGetConfig',
    'find',
    'insert',
    'update',
    'remove',
    'createIndex',
    ...(configuration.verification.enabled ? ['changeStream', 'appendOplogNote'] : []),
    ...(mode === 'none' ? [] : blocking),
  ]
  // Either may become the other.
  const ofBoth = [...new Set([...ofSource, ...ofDestination, 'collMod', 'serverStatus'])]
  const needed = configuration.reversible
    ? { source: ofBoth, destination: ofBoth }
    : { source: ofSource, destination: ofDestination }
  for (const [role, facts] of Object.entries({ source, destination })) {
    if (!facts.authenticated) continue
    const missing = needed[role as keyof typeof needed].filter(
      (action) => !facts.actions.has(action) && !facts.actions.has('anyAction'),
    )
    if (missing.length > 0) {
      throw new RefusedError(
        'MissingPrivileges',
        `the user on the ${role} lacks privileges: ${missing.join(', ')}. Grant the roles listed in README and send start again.`,
      )
    }
  }
}

function refuseTopology(configuration: StartConfiguration, { source, destination }: CheckedStart): void {
  for (const [role, facts] of Object.entries({ source, destination })) {
    if (facts.topology === 'standalone') {
      throw new RefusedError(
        'UnsupportedTopology',
        `the ${role} is a standalone server, which has no change streams. Restart it as a single-node replica set.`,
      )
    }
  }
  if (source.topology === 'sharded' && destination.topology === 'replicaSet') {
    throw new RefusedError('UnsupportedTopology', 'a sharded cluster cannot be synced to a replica set')
  }
  if (source.topology === 'replicaSet' && destination.topology === 'sharded') {
    if (!configuration.sharding) {
      throw new RefusedError(
        'ShardingRequired',
        'sharding is required from a replica set to a sharded cluster; an empty shardingEntries array shards nothing',
      )
    }
  } else if (configuration.sharding) {
    throw new RefusedError(
      'ShardingNotAllowed',
      'sharding is only for a sync from a replica set to a sharded cluster; leave it out',
    )
  }
  if (source.topology === 'sharded' || destination.topology === 'sharded') {
    refuseIrreversible(configuration, source, destination)
    throw new RefusedError('UnsupportedTopology', 'sharded clusters are not supported by this version of tandem')
  }
  if (source.identity === destination.identity) {
    throw new RefusedError('UnsupportedTopology', 'source and destination are the same replica set')
  }
}

function refuseVersions(configuration: StartConfiguration, { source, destination }: CheckedStart): void {
  if (source.major < 6) {
    if (configuration.writeBlockingGiven) {
      throw new RefusedError(
        'WriteBlockingNotSupported',
        `enableUserWriteBlocking cannot be set for a source older than 6.0 (it is ${source.version}); leave it out`,
      )
    }
    refuseIrreversible(configuration, source, destination)
    throw new RefusedError('UnsupportedVersion', `the source runs ${source.version}; 6.0 or later is needed`)
  }
  if (destination.major < source.major || destination.major > source.major + 2) {
    throw new RefusedError(
      'UnsupportedVersion',
      `the destination (${destination.version}) must not be older than the source (${source.version}) nor more than two major versions newer`,
    )
  }
}

/** What later versions of tandem will take. Refused rather than ignored. */
function refuseNotYet(configuration: StartConfiguration): void {
  if (configuration.includeNamespaces || configuration.excludeNamespaces) {
    throw new RefusedError(
      'NamespaceFilterNotSupported',
      'includeNamespaces and excludeNamespaces are not supported by this version of tandem; leave them out',
    )
  }
}

/** What the embedded verifier cannot do here. */
async function refuseVerification(configuration: StartConfiguration, source: Cluster): Promise<void> {
  if (!configuration.verification.enabled) return
  refuseLittleMemory(availableMemory())
  if (configuration.buildIndexes !== 'never') return
  for (const database of await listDatabases(source)) {
    for (const { name, uuid } of await listCollections(source, database)) {
      if (uuid) refuseExpiry(database, name, (await listIndexes(source, database, uuid)) ?? [])
    }
  }
}

async function refuseCollections(source: Cluster): Promise<void> {
  for (const database of await listDatabases(source))
    refuseUnsupported(database, await listCollections(source, database))
}

async function refuseNonEmpty(destination: Cluster): Promise<void> {
  for (const database of await listDatabases(destination)) {
    const found = (await listCollections(destination, database)).find((one) => isUserCollection(one.name))
    if (found) {
      throw new RefusedError(
        'DestinationNotEmpty',
        `the destination holds ${namespace(database, found.name)}; drop its user databases first`,
      )
    }
  }
}

/** What a command that met `error` is answered; anything unknown passes unchanged and becomes InternalError. */
export function asRefusal(error: unknown): unknown {
  const fatal = toFatal('start', error)
  if (
    fatal instanceof FatalError &&
    (fatal.failure === 'UnsupportedCollection' ||
      fatal.failure === 'MissingPrivileges' ||
      fatal.failure === 'VerificationNotSupported')
  ) {
    return new RefusedError(fatal.failure, fatal.message, { cause: error })
  }
  if (isTransient(error) || error instanceof StoppedError) {
    return new RefusedError('ClusterUnreachable', 'a cluster does not answer; check both and send start again', {
      cause: error,
    })
  }
  return error
}

/** Every write keeps top-level Timestamp(0, 0) by a field that older servers do not know; asked of a document that is not there. */
async function refuseOldPatch(destination: Cluster, version: string): Promise<void> {
  try {
    await destination.read(metadataDatabase, {
      update: 'probe',
      updates: [{ q: { _id: 0 }, u: { $unset: { probe: '' } } }],
      bypassEmptyTsReplacement: true,
      ...(destination.writesCarryBypass ? { mayBypassWriteBlocking: true } : {}),
    })
  } catch (error) {
    if (codeOf(error) !== code.unknownField) throw error
    throw new RefusedError(
      'UnsupportedVersion',
      `the destination (${version}) cannot keep an empty timestamp as it is (bypassEmptyTsReplacement); upgrade it to the latest ` +
        'patch release, 6.0.17 or later',
    )
  }
}
