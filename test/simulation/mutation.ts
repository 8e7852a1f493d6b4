import type { Network } from './network.ts'
import type { Process } from './process.ts'

export interface Mutation {
  what: string
  /** Changes the product's code. Returns a function that restores it. */
  code?: () => () => void
  world?: (destination: Network) => void
  process?: (process: Process) => void
}

type Method = (this: unknown, ...given: unknown[]) => unknown

/** Replaces a method. Returns a function that restores the former one. */
export function swap(owner: object, name: string, made: (former: Method) => Method): () => void {
  const methods = owner as Record<string, Method>
  const former = methods[name]
  if (!former) throw new Error(`there is no method ${name} to replace`)
  methods[name] = made(former)
  return () => {
    methods[name] = former
  }
}
