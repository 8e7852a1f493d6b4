import type { InstancesReport } from '../../src/domain/instances.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { type CommandAnswer, startTandem, type Tandem, type TandemOptions } from './tandem-process.ts'

export interface Instances extends AsyncDisposable {
  /** The running instances by mongosyncID. */
  members: Map<string, Tandem>
  /** @param overrides options for this instance only, such as connection strings through a proxy */
  start(id: string, overrides?: Partial<TandemOptions>): Promise<Tandem>
  /** Sends the same command to every instance in parallel, as the API contract requires. */
  post(command: string, body?: unknown): Promise<Map<string, CommandAnswer>>
  /** Waits until the predicate holds for every instance. */
  allReach(predicate: (progress: Progress) => boolean, what: string, timeoutSeconds?: number): Promise<Progress[]>
  /** Returns one instance's report on all instances. */
  instances(of?: Tandem): Promise<InstancesReport>
  coordinator(): Promise<Tandem>
  kill9(id: string): Promise<void>
  stop(): Promise<void>
}

/** Starts several instances of one sync, each in its own process. */
export async function startInstances(ids: string[], options: Omit<TandemOptions, 'id'>): Promise<Instances> {
  const members = new Map<string, Tandem>()
  const start = async (id: string, overrides: Partial<TandemOptions> = {}): Promise<Tandem> => {
    const tandem = await startTandem({ ...options, ...overrides, id })
    members.set(id, tandem)
    return tandem
  }
  const any = (): Tandem => {
    const [first] = members.values()
    if (!first) throw new Error('no instance is running')
    return first
  }
  const running: Instances = {
    members,
    start,
    post: async (command, body = {}) => {
      const answers = await Promise.all(
        [...members].map(async ([id, tandem]) => [id, await tandem.post(command, body)] as const),
      )
      return new Map(answers)
    },
    allReach: async (predicate, what, timeoutSeconds = 60) =>
      await Promise.all([...members.values()].map((tandem) => tandem.waitFor(predicate, { timeoutSeconds, what }))),
    instances: async (of = any()) => {
      const response = await fetch(`${of.url}/api/v1/instances`)
      return (await response.json()) as InstancesReport
    },
    coordinator: async () => {
      const { coordinatorID } = await any().progress()
      const tandem = members.get(coordinatorID ?? '')
      if (!tandem) throw new Error(`the coordinator ${coordinatorID} is not running`)
      return tandem
    },
    kill9: async (id) => {
      await members.get(id)?.kill9()
      members.delete(id)
    },
    stop: async () => {
      await Promise.all([...members.values()].map((tandem) => tandem.stop()))
      members.clear()
    },
    [Symbol.asyncDispose]: () => running.stop(),
  }
  try {
    await Promise.all(ids.map((id) => start(id)))
  } catch (error) {
    await running.stop()
    throw error
  }
  return running
}

/** Throws unless every instance has accepted the command. */
export function expectAccepted(answers: Map<string, CommandAnswer>): void {
  for (const [id, { status, body }] of answers) {
    if (status !== 200) throw new Error(`${id} answered ${status} ${JSON.stringify(body)}`)
  }
}
