/** The names of the other cluster's shards, by the names of the shards of this cluster. A shard without an entry has the same name on both. */
export type ShardNames = ReadonlyMap<string, string>

/** The pairs of `--shardNames`: the name of a shard of cluster0, and that of the shard of cluster1 that has its zones. */
export type ShardNamePairs = readonly (readonly [cluster0: string, cluster1: string])[]

/**
 * Parses `rs0=shardA,rs1=shardB`. Returns the text of the problem if that fails. No shard of either cluster may be named
 * twice, so that the pairs also hold in the opposite direction, after a reversal.
 */
export function parseShardNames(text: string): ShardNamePairs | string {
  const pairs: (readonly [string, string])[] = []
  for (const part of text.split(',')) {
    const [one = '', other = '', ...rest] = part.split('=').map((name) => name.trim())
    if (one === '' || other === '' || rest.length > 0) return `"${part.trim()}" is not of the form name0=name1`
    pairs.push([one, other])
  }
  for (const [at, cluster] of ['cluster0', 'cluster1'].entries()) {
    const names = pairs.map((pair) => pair[at] as string)
    const repeated = names.find((name, index) => names.indexOf(name) < index)
    if (repeated !== undefined) return `the shard ${repeated} of ${cluster} is named twice`
  }
  return pairs
}

/** Returns the names by which each cluster finds the shards of the other one. */
export function shardNamesOf(pairs: ShardNamePairs): Record<'cluster0' | 'cluster1', ShardNames> {
  return { cluster0: new Map(pairs), cluster1: new Map(pairs.map(([one, other]) => [other, one])) }
}
