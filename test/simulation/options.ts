import type { Break } from './breaks.ts'

/** As the product has it: one for each shard, and not fewer than this. */
export const partitionsMin = 16

/** What a simulated world is made of. Everything else about it follows from the seed. */
export interface WorldOptions {
  seed: number
  shards: number
  instances: number
  /** Everything that happens counts: a timer, a message, a change on the source. Faults end after so many. */
  steps: number
  documents: number
  collections: number
  /** Changes on the source in a second. */
  rate: number
  /** Changes of definitions on the source in a second. */
  definitionRate: number
  /** Wall clocks differ by up to this either way, ms. */
  skewMaxMS: number
  /** Clocks run faster or slower by up to this share. */
  driftMax: number
  /** Faults a second, on average. */
  faultRate: number
  /** The collections begin uncopied: segments are planned and copied while changes are applied. */
  copies: boolean
  /** A mutation of the product or of the world, which must be found. */
  breaks: Break | null
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
  breaks: null,
}
