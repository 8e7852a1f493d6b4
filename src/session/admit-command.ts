import { asRefusal } from '../checks/check.ts'
import { RefusedError } from '../domain/errors.ts'
import type { PublicState } from '../domain/progress.ts'
import { LeasePatience } from './lease-patience.ts'
import type { SyncInstance } from './sync-instance.ts'

/** The commands that this instance is carrying out. It carries out each command at most once at a time. */
export class UnderWay {
  readonly #commands = new Set<string>()

  has(command: string): boolean {
    return this.#commands.has(command)
  }

  async during<T>(command: string, work: () => Promise<T>): Promise<T> {
    this.#commands.add(command)
    try {
      return await work()
    } finally {
      this.#commands.delete(command)
    }
  }
}

/**
 * Makes sure that this instance holds its lease before a command changes its stored context; takes the lease if it has
 * none.
 * @param except a state in which an instance holds no lease
 * @returns the remaining time that the command may wait
 */
export async function leased(sync: SyncInstance, command: string, except?: PublicState): Promise<LeasePatience> {
  const patience = new LeasePatience(command, sync)
  sync.refuseTakenOver()
  if (sync.state === 'IDLE' || sync.state === except) return patience
  try {
    await patience.held(sync)
  } catch (error) {
    throw asRefusal(error, command)
  }
  sync.refuseTakenOver()
  return patience
}

/**
 * Stores a command that all instances carry out, under this instance's lease. If this fails, the error is converted by
 * `asRefusal`.
 */
export async function storedForAll<T>(
  sync: SyncInstance,
  command: string,
  patience: LeasePatience,
  store: (until: AbortSignal) => Promise<T>,
): Promise<T> {
  try {
    return await patience.withLease(sync, sync.parts.context.signal, store)
  } catch (error) {
    throw asRefusal(error, command)
  }
}

/** Returns the refusal of a command that the instance accepts only in another state. */
export function wrongState({ state }: SyncInstance, command: string, expected: string): RefusedError {
  return new RefusedError('WrongState', `${command} is accepted in ${expected}; the state is ${state}`)
}
