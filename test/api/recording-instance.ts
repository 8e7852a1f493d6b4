import { type Api, createApi } from '../../src/api/app.ts'
import type { Instance } from '../../src/api/instance.ts'
import type { Progress } from '../../src/domain/progress.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import { idleProgress } from '../../src/report-progress.ts'
import type { Mismatch } from '../../src/verify/difference.ts'

/** Observes what the HTTP layer passes on, and lets a test choose what it is answered. It imitates no sync. */
export class RecordingInstance implements Instance {
  calls: { command: string; configuration?: StartConfiguration }[] = []
  answer: () => Promise<void> = async () => {}
  shown: Progress = idleProgress

  progress(): Progress {
    return this.shown
  }
  start(configuration: StartConfiguration): Promise<void> {
    this.calls.push({ command: 'start', configuration })
    return this.answer()
  }
  pause(): Promise<void> {
    return this.#record('pause')
  }
  resume(): Promise<void> {
    return this.#record('resume')
  }
  commit(): Promise<void> {
    return this.#record('commit')
  }
  reverse(): Promise<void> {
    return this.#record('reverse')
  }
  found: Awaited<ReturnType<Instance['mismatches']>> = { mismatches: [], total: 0 }
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    return Promise.resolve(this.found)
  }
  async repair(): Promise<number> {
    await this.#record('repair')
    return 0
  }
  #record(command: string): Promise<void> {
    this.calls.push({ command })
    return this.answer()
  }
}

export interface ApiUnderTest {
  api: Api
  instance: RecordingInstance
  internalErrors: unknown[]
  /** Sends a POST with this body: text as it is, anything else as JSON. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>
  get(path: string, headers?: Record<string, string>): Promise<Reply>
}

export interface Reply {
  status: number
  headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  body: any
}

export function apiUnderTest(boundAddresses: string[] = []): ApiUnderTest {
  const instance = new RecordingInstance()
  const internalErrors: unknown[] = []
  const onInternalError = (error: unknown) => internalErrors.push(error)
  const api = createApi({ instance, version: '1.2.3', boundAddresses, onInternalError })
  const send = async (path: string, init: RequestInit): Promise<Reply> => {
    const response = await api.request(path, init)
    return { status: response.status, headers: response.headers, body: await response.json() }
  }
  return {
    api,
    instance,
    internalErrors,
    post: (path, body, headers = {}) =>
      send(path, {
        method: 'POST',
        headers,
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      }),
    get: (path, headers = {}) => send(path, { headers }),
  }
}

/** The smallest start that is accepted. */
export const minimalStart = { source: 'cluster0', destination: 'cluster1' }
