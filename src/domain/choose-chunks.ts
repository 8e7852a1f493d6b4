import { compareKeys } from './compare-values.ts'
import type { TypedValue } from './raw-bson.ts'

/** The values of a shard key, in the order of its fields. */
export type KeyValues = readonly TypedValue[]

/** Shard key values that may become the boundary between two chunks. */
interface Candidate {
  values: KeyValues
  /** The estimated share of the collection that precedes these values, in samples. */
  position: number
}

export interface PlannedChunk {
  /** The lower bound; null for the first chunk, which begins at MinKey. */
  from: KeyValues | null
  /** The estimated share of the collection, in samples. */
  weight: number
}

/**
 * Divides a collection into at most `max` chunks of similar sizes. The boundaries are those of `bounds`. Adjacent chunks
 * are merged when there are too many. A chunk that has more than its share of the samples is also split at samples,
 * until there are `wanted` chunks.
 * @param bounds the boundaries between the source's chunks; ascending and distinct
 * @param samples shard key values of random documents; ascending
 */
export function chooseChunks(
  bounds: readonly KeyValues[],
  samples: readonly KeyValues[],
  wanted: number,
  max: number,
): PlannedChunk[] {
  const known = positioned(bounds, samples)
  const candidates = bounds.length + 1 < wanted ? withSamples(known, samples, wanted) : known
  const chosen = thinned(candidates, samples.length, max)
  const edges = [0, ...chosen.map(({ position }) => position), samples.length + emptyWeight]
  return edges.slice(1).map((edge, at) => ({
    from: chosen[at - 1]?.values ?? null,
    weight: edge - (edges[at] as number),
  }))
}

/** All chunks of a collection together have this weight in addition to their samples, so that empty chunks have some. */
const emptyWeight = 1

/** Finds the position of each boundary among the samples. */
function positioned(bounds: readonly KeyValues[], samples: readonly KeyValues[]): Candidate[] {
  let below = 0
  return bounds.map((values, at) => {
    while (below < samples.length && compareKeys(samples[below] as KeyValues, values) < 0) below++
    return { values, position: below + (emptyWeight * (at + 1)) / (bounds.length + 1) }
  })
}

/** Adds samples that divide the collection evenly, where no boundary is within half a chunk of them. */
function withSamples(known: Candidate[], samples: readonly KeyValues[], wanted: number): Candidate[] {
  const step = samples.length / wanted
  const candidates: Candidate[] = []
  let next = 0
  for (let part = 1; part < wanted; part++) {
    const position = Math.floor(part * step)
    const values = samples[position]
    if (!values) continue
    while (next < known.length && compareKeys((known[next] as Candidate).values, values) <= 0) {
      candidates.push(known[next++] as Candidate)
    }
    const last = candidates.at(-1)
    const isNear = (other: Candidate | undefined): boolean =>
      other !== undefined && Math.abs(other.position - position) < step / 2
    if (isNear(known[next - 1]) || isNear(known[next])) continue
    // The first sample is not below anything, and equal values cannot be divided.
    if (compareKeys(values, last?.values ?? (samples[0] as KeyValues)) <= 0) continue
    candidates.push({ values, position: Math.max(position, last?.position ?? 0) })
  }
  return [...candidates, ...known.slice(next)]
}

/** The candidates that are nearest to `max` equal parts of the collection. All of them if there are no more. */
function thinned(candidates: Candidate[], samples: number, max: number): Candidate[] {
  if (candidates.length < max) return candidates
  const step = (samples + emptyWeight) / max
  const chosen = new Set<Candidate>()
  let at = 0
  for (let part = 1; part < max; part++) {
    const distance = (index: number): number =>
      Math.abs((candidates[index]?.position ?? Number.POSITIVE_INFINITY) - part * step)
    while (at + 1 < candidates.length && distance(at + 1) <= distance(at)) at++
    chosen.add(candidates[at] as Candidate)
  }
  return [...chosen]
}

/** Splits chunks further, so that each of these values begins a chunk. The parts of a chunk share its weight equally. */
export function splitAlso(chunks: readonly PlannedChunk[], values: readonly KeyValues[]): PlannedChunk[] {
  return chunks.flatMap((chunk, at) => {
    const next = chunks[at + 1]?.from
    const inside = values.filter(
      (one) => (chunk.from === null || compareKeys(chunk.from, one) < 0) && (!next || compareKeys(one, next) < 0),
    )
    const weight = chunk.weight / (inside.length + 1)
    return [chunk.from, ...inside].map((from) => ({ from, weight }))
  })
}

/**
 * Assigns each chunk to one of the shards that may hold it, so that the shards get similar shares. Adjacent chunks
 * mostly go to the same shard, so that a query on a range of keys reaches fewer shards.
 * @param allowed the shards that may hold a chunk; at least one
 */
export function assignShards(
  chunks: readonly PlannedChunk[],
  allowed: (chunk: PlannedChunk) => readonly string[],
): string[] {
  const loads = new Map<string, number>()
  const loadOf = (shard: string): number => loads.get(shard) ?? 0
  const assigned: string[] = []
  for (let from = 0; from < chunks.length; ) {
    const shards = [...allowed(chunks[from] as PlannedChunk)]
    const isSame = (chunk: PlannedChunk): boolean => allowed(chunk).join('\0') === shards.join('\0')
    let to = from + 1
    while (to < chunks.length && isSame(chunks[to] as PlannedChunk)) to++
    const run = chunks.slice(from, to)
    let left = run.reduce((sum, { weight }) => sum + weight, 0)
    shards.sort((one, other) => loadOf(one) - loadOf(other))
    // A chunk that is larger than a shard's share must go to some shard too, so each shard takes at least one chunk.
    let taken = 0
    for (const { weight } of run) {
      // The rest of the run is divided among the first of these shards and those after it, up to equal loads.
      const target = (left + shards.reduce((sum, shard) => sum + loadOf(shard), 0)) / shards.length
      if (taken > 0 && shards.length > 1 && loadOf(shards[0] as string) + weight / 2 > target) {
        shards.shift()
        taken = 0
      }
      const shard = shards[0] as string
      loads.set(shard, loadOf(shard) + weight)
      left -= weight
      taken++
      assigned.push(shard)
    }
    from = to
  }
  return assigned
}
