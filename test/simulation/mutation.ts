import type { Network } from './network.ts'
import type { Process } from './process.ts'

export interface Mutation {
  what: string
  /** Changes the product's code; returns what changes it back. */
  code?: () => () => void
  world?: (destination: Network) => void
  process?: (process: Process) => void
}

type Method = (this: unknown, ...given: unknown[]) => unknown

/** Puts another method in the place of one; returns what puts the former one back. */
export function swap(owner: object, name: string, made: (former: Method) => Method): () => void {
  const methods = owner as Record<string, Method>
  const former = methods[name]
  if (!former) throw new Error(`there is no method ${name} to be replaced`)
  methods[name] = made(former)
  return () => {
    methods[name] = former
  }
}
