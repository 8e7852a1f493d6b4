import type { Break } from './breaks.ts'

/** Minimum number of partitions, as in the product. There is also at least one partition for each shard. */
export const partitionsMin = 16

/** Parameters of a simulated world. Everything else follows from the seed. */
export interface WorldOptions {
  seed: number
  shards: number
  instances: number
  /** Number of steps after which faults end. Every timer, message and change on the source is a step. */
  steps: number
  documents: number
  collections: number
  /** Changes on the source per second. */
  rate: number
  /** DDL operations on the source per second. */
  definitionRate: number
  /** Maximum deviation of wall clocks in either direction, ms. */
  skewMaxMS: number
  /** Maximum drift of clocks in either direction, as a fraction of true time. */
  driftMax: number
  /** Average number of faults per second. */
  faultRate: number
  /** Whether the collections are initially uncopied, so that segments are planned and copied while changes are applied. */
  copies: boolean
  /** Whether each collection has many ranges, which all instances compare slowly in the verifier's first pass. */
  verifies: boolean
  /** A mutation of the product or of the world that the simulation must detect. */
  breaks: Break | null
  /** True if the mutation delays messages as it does, but removes no condition from statements. The sync must then be correct. */
  guarded?: boolean
}

export const smallWorld: Omit<WorldOptions, 'seed'> = {
  shards: 4,
  instances: 4,
  steps: 10_000,
  documents: 600,
  collections: 3,
  rate: 40,
  definitionRate: 0.15,
  skewMaxMS: 300_000,
  driftMax: 1e-3,
  faultRate: 0.4,
  copies: false,
  verifies: false,
  breaks: null,
}
