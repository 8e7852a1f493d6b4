import { type Api, createApi } from '../../src/api/app.ts'
import type { RefusedTokens } from '../../src/api/failed-tokens.ts'
import { Sampler } from '../../src/api/sampler.ts'
import { Tokens } from '../../src/api/tokens.ts'
import type { AuditEntry, CommandCall, ReceivedCommand } from '../../src/domain/audit-entry.ts'
import type { CollectionRow, CollectionsPage, CollectionsReport } from '../../src/domain/collection-figures.ts'
import type { CommitRequest } from '../../src/domain/commit-request.ts'
import type { FilterRequest } from '../../src/domain/filter-request.ts'
import type { CheckOptions, Finding } from '../../src/domain/finding.ts'
import type { Instance, RepairReport } from '../../src/domain/instance.ts'
import { type InstanceRow, type InstancesReport, totalsOf } from '../../src/domain/instances.ts'
import { type Limits, type LimitsReport, noLimits } from '../../src/domain/limits.ts'
import { concurrencyOf } from '../../src/domain/load-level.ts'
import type { Mismatch } from '../../src/domain/mismatch.ts'
import type { NamespaceName } from '../../src/domain/namespace.ts'
import type { GivenCommand, PeerAnswer, PeerAnswers } from '../../src/domain/peer-command.ts'
import type { Progress } from '../../src/domain/progress.ts'
import type { StartConfiguration } from '../../src/domain/start-request.ts'
import type { WorkMeter } from '../../src/domain/work-meter.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

/** An instance for tests of the HTTP layer. It records each call, and answers as the test chooses. It does not imitate a sync. */
export class RecordingInstance implements Instance {
  calls: { command: string; configuration?: StartConfiguration; options?: CheckOptions; request?: CommitRequest }[] = []
  answer: () => Promise<void> = async () => {}
  shown: Progress = idleProgress

  progress(): Progress {
    return this.shown
  }
  rows: InstanceRow[] = []
  async instances(): Promise<InstancesReport> {
    return { instances: this.rows, totals: totalsOf(this.rows) }
  }
  collectionRows: CollectionRow[] = []
  async collections({ limit, after }: CollectionsPage): Promise<CollectionsReport> {
    return { collections: this.collectionRows.slice(after, after + limit), total: this.collectionRows.length }
  }
  startWarnings: string[] = []
  async start(configuration: StartConfiguration): Promise<string[]> {
    this.calls.push({ command: 'start', configuration })
    await this.answer()
    return this.startWarnings
  }
  findings: Finding[] = []
  async check(configuration: StartConfiguration, options: CheckOptions): Promise<Finding[]> {
    this.calls.push({ command: 'check', configuration, options })
    await this.answer()
    return this.findings
  }
  wanted: Limits = noLimits
  limits(): LimitsReport {
    const { bytesPerSecond, readConcurrency, writeConcurrency } = this.wanted
    const usual = concurrencyOf(3)
    return {
      bytesPerSecond,
      readConcurrency: readConcurrency ?? usual,
      writeConcurrency: writeConcurrency ?? usual,
    }
  }
  async limit(limits: Partial<Limits>): Promise<LimitsReport> {
    await this.#record('limit')
    this.wanted = { ...this.wanted, ...limits }
    return this.limits()
  }
  pause(): Promise<void> {
    return this.#record('pause')
  }
  resume(): Promise<void> {
    return this.#record('resume')
  }
  commit(request: CommitRequest): Promise<void> {
    return this.#record('commit', request)
  }

  abort(): Promise<void> {
    return this.#record('abort')
  }
  reverse(): Promise<void> {
    return this.#record('reverse')
  }
  peerAnswers: [id: string, answer: PeerAnswer][] = []
  async sendToAll({ command, request }: GivenCommand): Promise<PeerAnswers> {
    await this.#record(`all ${command}`, request)
    return new Map(this.peerAnswers)
  }
  found: Awaited<ReturnType<Instance['mismatches']>> = { mismatches: [], total: 0 }
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    return Promise.resolve(this.found)
  }
  received: ReceivedCommand[] = []
  async commandReceived(call: ReceivedCommand): Promise<void> {
    this.received.push(call)
  }
  recorded: (CommandCall & { admitted: boolean })[] = []
  commandAnswered(call: CommandCall, admitted: boolean): void {
    this.recorded.push({ ...call, admitted })
  }
  audit(): Promise<AuditEntry[]> {
    return Promise.resolve(this.recorded.map(({ admitted: _, ...call }) => ({ ...call, mongosyncID: 'one' })).reverse())
  }
  async repair(): Promise<RepairReport> {
    await this.#record('repair')
    return { repairedDocuments: 0, convergingCollections: 0 }
  }
  resynced: readonly NamespaceName[] = []
  resync(namespaces: readonly NamespaceName[]): Promise<void> {
    this.resynced = namespaces
    return this.#record('resync')
  }
  filtered: FilterRequest | null = null
  filter(request: FilterRequest): Promise<void> {
    this.filtered = request
    return this.#record('filter')
  }
  #record(command: string, request?: CommitRequest): Promise<void> {
    this.calls.push({ command, ...(request && { request }) })
    return this.answer()
  }
}

export interface ApiUnderTest {
  api: Api
  sampler: Sampler
  instance: RecordingInstance
  internalErrors: unknown[]
  tokensRefused: RefusedTokens[]
  /** The commands and answers, in the form in which the log contains them. */
  exchanges: object[]
  /** Sends a POST request. A body that is a text is sent unchanged, any other body as JSON. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>
  get(path: string, headers?: Record<string, string>): Promise<Reply>
}

export interface Reply {
  status: number
  headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of every shape
  body: any
}

export interface Guards {
  token?: string
  readToken?: string
  anyHost?: boolean
}

export interface Work {
  meter?: WorkMeter | undefined
}

export function apiUnderTest({ token, readToken, anyHost = false, meter }: Guards & Work = {}): ApiUnderTest {
  const instance = new RecordingInstance()
  const internalErrors: unknown[] = []
  const onInternalError = (error: unknown) => internalErrors.push(error)
  const sampler = new Sampler(instance, { onInternalError })
  const tokens = token === undefined ? null : new Tokens({ control: token, read: readToken ?? null })
  const tokensRefused: RefusedTokens[] = []
  const exchanges: object[] = []
  const onTokensRefused = (refused: RefusedTokens) => tokensRefused.push(refused)
  const api = createApi({
    instance,
    sampler,
    version: '1.2.3',
    tokens,
    anyHost,
    onInternalError,
    onTokensRefused,
    exchanges: {
      received: (request) => exchanges.push(request),
      answered: (response) => exchanges.push(response),
    },
    ...(meter && { meter }),
  })
  const send = async (path: string, init: RequestInit): Promise<Reply> => {
    const response = await api.request(path, init)
    return { status: response.status, headers: response.headers, body: await response.json() }
  }
  return {
    api,
    sampler,
    instance,
    internalErrors,
    tokensRefused,
    exchanges,
    post: (path, body, headers = {}) =>
      send(path, {
        method: 'POST',
        headers,
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      }),
    get: (path, headers = {}) => send(path, { headers }),
  }
}

/** The smallest body of a start that is accepted. */
export const minimalStart = { source: 'cluster0', destination: 'cluster1' }
