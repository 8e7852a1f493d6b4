import { metadataDatabases } from '../domain/namespace.ts'
import { seriesOf } from '../domain/release.ts'
import { type ClusterFacts, type RehearsalCluster, reverseClaimDatabase } from './rehearsal-cluster.ts'
import type { RehearsalKind } from './rehearsal-databases.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'

type Facts = Record<'cluster0' | 'cluster1', ClusterFacts>

/**
 * Returns facts about the clusters. Throws RehearsalFailure if they are not fit for a rehearsal, for example because
 * they have the metadata of a sync or databases of another rehearsal.
 */
export async function preparedClusters(
  source: RehearsalCluster,
  destination: RehearsalCluster,
  kind: RehearsalKind,
): Promise<Facts> {
  const [cluster0, cluster1] = await Promise.all([source.readFacts(), destination.readFacts()])
  const [ours, theirs] = await Promise.all([source.processId(), destination.processId()])
  if (ours === theirs && ours !== 'undefined') {
    throw new RehearsalFailure('--cluster0 and --cluster1 lead to the same server; give two clusters')
  }
  if (source.major < 6 && !kind.blockWrites) {
    throw new RehearsalFailure(
      `a sync from ${cluster0.version} always blocks user writes on cluster1, because a source older than 6.0 does not allow another enableUserWriteBlocking; add --blockWrites if all writers of cluster1 may be stopped`,
    )
  }
  if (kind.reverse) refuseIrreversible({ cluster0, cluster1 })
  await refuseBlocked(kind.reverse ? [source, destination] : [destination], kind)
  await refuseConflicts([source, destination], kind)
  return { cluster0, cluster1 }
}

/**
 * Throws RehearsalFailure if a cluster has the metadata of a sync, databases of another rehearsal or, for a rehearsal of
 * `reverse`, any other user database. The two kinds of rehearsals have their claims in different databases, so this is
 * called again when the claim is stored. If two rehearsals begin at the same time, at least the one whose claim was
 * stored later finds the claim of the other.
 * @param claimed the database of the rehearsal's own claim, which is ignored
 */
export async function refuseConflicts(
  clusters: readonly RehearsalCluster[],
  { prefix, reverse }: RehearsalKind,
  claimed: string | null = null,
): Promise<void> {
  for (const cluster of clusters) {
    const occupied = await cluster.occupied(prefix)
    refuseOccupied(
      cluster.name,
      occupied.filter((name) => name !== claimed),
    )
    if (reverse) await refuseOthers(cluster, prefix)
  }
}

/** `start` refuses such a reversible sync too, but only after the rehearsal has written its data. */
function refuseIrreversible({ cluster0, cluster1 }: Facts): void {
  const refuse = (reason: string): never => {
    throw new RehearsalFailure(`--reverse is not possible ${reason}; leave --reverse out`)
  }
  const versions = `cluster0 ${cluster0.version}, cluster1 ${cluster1.version}`
  if (Number.parseInt(cluster0.version, 10) < 6) refuse(`with a source older than 6.0 (${cluster0.version})`)
  if (seriesOf(cluster0.version) !== seriesOf(cluster1.version)) {
    refuse(`between clusters of different release series (${versions})`)
  }
  if (cluster0.topology !== cluster1.topology) refuse('between a replica set and a sharded cluster')
  if (cluster0.shards !== cluster1.shards) {
    refuse(`between different numbers of shards (cluster0 ${cluster0.shards}, cluster1 ${cluster1.shards})`)
  }
}

/** The rehearsal allows writes again when it ends, so it must not begin if somebody else has blocked them. */
async function refuseBlocked(clusters: readonly RehearsalCluster[], { blockWrites }: RehearsalKind): Promise<void> {
  if (!blockWrites) return
  for (const cluster of clusters) {
    if ((await cluster.isBlocked()) !== true) continue
    throw new RehearsalFailure(
      `${cluster.name} blocks user writes already, and a rehearsal with --blockWrites would allow them; leave --blockWrites out`,
    )
  }
}

function refuseOccupied(cluster: string, occupied: readonly string[]): void {
  const stored = metadataDatabases.find((name) => occupied.includes(name))
  if (stored !== undefined) {
    throw new RehearsalFailure(
      `${cluster} has the database ${stored}, so a sync of tandem is stored there; rehearse before that sync begins or after it has been removed`,
    )
  }
  if (occupied.includes(reverseClaimDatabase)) {
    throw new RehearsalFailure(
      `${cluster} has the databases ${occupied.join(', ')}, so a rehearsal with --reverse uses all of it; wait until that has ended, or drop them if they are left from a rehearsal that was killed`,
    )
  }
  if (occupied.length > 0) {
    throw new RehearsalFailure(
      `${cluster} already has the databases ${occupied.join(', ')}; give another --prefix, or drop them if they are left from a rehearsal that was killed`,
    )
  }
}

/** A reversible sync has no filter, so it would copy these databases, or refuse to start because of them. */
async function refuseOthers(cluster: RehearsalCluster, prefix: string): Promise<void> {
  const others = await cluster.otherDatabases(prefix)
  if (others.length === 0) return
  throw new RehearsalFailure(
    `--reverse syncs all databases, and ${cluster.name} has ${others.join(', ')}; give two clusters without user databases, for example new ones of the same releases, or leave --reverse out`,
  )
}
