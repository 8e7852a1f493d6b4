import { compareKeys } from './compare-values.ts'
import type { TypedValue } from './raw-bson.ts'

/** The values of a shard key, in the order of its fields. */
export type KeyValues = readonly TypedValue[]

/** Shard key values that may become the boundary between two chunks. */
interface Candidate {
  values: KeyValues
  /** The estimated share of the collection that precedes these values, as a number of samples. */
  position: number
}

export interface PlannedChunk {
  /** The lower bound; null for the first chunk, which begins at MinKey. */
  from: KeyValues | null
  /** The estimated share of the collection in this chunk, as a number of samples. */
  weight: number
}

/**
 * Divides a collection into at most `max` chunks of similar sizes. It uses the boundaries in `bounds`. If there are too
 * many, it merges adjacent chunks. If there are fewer than `wanted` chunks, it also splits large chunks at samples.
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

/**
 * The chunks of a collection share this weight in addition to the weight of their samples, so that the weight of an
 * empty chunk is not 0.
 */
const emptyWeight = 1

/** Finds the position of each boundary among the samples. */
function positioned(bounds: readonly KeyValues[], samples: readonly KeyValues[]): Candidate[] {
  let below = 0
  return bounds.map((values, at) => {
    while (below < samples.length && compareKeys(samples[below] as KeyValues, values) < 0) below++
    return { values, position: below + (emptyWeight * (at + 1)) / (bounds.length + 1) }
  })
}

/**
 * Adds samples that divide the collection into `wanted` equal parts. Omits a sample that is less than half a part away
 * from a known boundary.
 */
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
    // A boundary must be above the first sample, because no sample is below that one. It must also be above the last
    // candidate, because documents with equal values cannot be separated.
    if (compareKeys(values, last?.values ?? (samples[0] as KeyValues)) <= 0) continue
    candidates.push({ values, position: Math.max(position, last?.position ?? 0) })
  }
  return [...candidates, ...known.slice(next)]
}

/** Returns the candidates that are nearest to `max` equal parts of the collection, or all if there are fewer. */
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

/** Splits chunks so that each of these values begins a chunk. The parts of a chunk share its weight equally. */
export function splitAtValues(chunks: readonly PlannedChunk[], values: readonly KeyValues[]): PlannedChunk[] {
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
    // Adjacent chunks that the same shards may hold.
    const run = chunks.slice(from, to)
    let remaining = run.reduce((sum, { weight }) => sum + weight, 0)
    shards.sort((one, other) => loadOf(one) - loadOf(other))
    // A shard takes at least one chunk before the next shard's turn, even if the chunk is larger than the shard's share.
    let taken = 0
    for (const { weight } of run) {
      // The load that each remaining shard would have if the remaining chunks of the run made these loads equal.
      const target = (remaining + shards.reduce((sum, shard) => sum + loadOf(shard), 0)) / shards.length
      if (taken > 0 && shards.length > 1 && loadOf(shards[0] as string) + weight / 2 > target) {
        shards.shift()
        taken = 0
      }
      const shard = shards[0] as string
      loads.set(shard, loadOf(shard) + weight)
      remaining -= weight
      taken++
      assigned.push(shard)
    }
    from = to
  }
  return assigned
}
