import { Hono } from 'hono'
import { generateSpecs } from 'hono-openapi'
import { RefusedError } from '../domain/errors.ts'
import type { Instance } from '../domain/instance.ts'
import type { Progress } from '../domain/progress.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { WorkMeter } from '../domain/work-meter.ts'
import { failure, wrongMethod } from './answers.ts'
import { auditAdmitted, auditCommands, type CommandRecorder } from './audit-commands.ts'
import { auditAnswerSchema, auditPage, renderAudit } from './audit-schema.ts'
import { collectionsAnswerSchema, collectionsPage, writeCollections } from './collections-schema.ts'
import { commitBodySchema, parseCommit } from './commit-schema.ts'
import { dashboardPaths, dashboardRoutes } from './dashboard.ts'
import { describeCommand, describeOpenQuery, describeQuery } from './describe-endpoint.ts'
import { docsPaths, docsRoutes } from './docs-pages.ts'
import { eventRoutes } from './events.ts'
import { FailedTokens, type RefusedTokens } from './failed-tokens.ts'
import { filterBodySchema, parseFilter } from './filter-schema.ts'
import { findingsAnswerSchema, renderFindings } from './findings-schema.ts'
import { guardHost } from './guard-host.ts'
import { instancesAnswerSchema, renderInstances } from './instances-schema.ts'
import { limitsAnswerSchema, limitsBodySchema, parseLimits, renderLimits } from './limits-schema.ts'
import { metricsContentType, renderMetrics } from './metrics.ts'
import {
  mismatchesAnswerSchema,
  mismatchesPage,
  renderMismatches,
  renderRepaired,
  repairedSchema,
} from './mismatches-schema.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { processMetrics } from './process-metrics.ts'
import { progressAnswerSchema, renderProgress } from './progress-schema.ts'
import { readEmptyBody, readJsonObject } from './read-body.ts'
import { bodyForLog, type ExchangeRecorder, recordExchanges } from './record-exchanges.ts'
import { requireToken } from './require-token.ts'
import { parseResync, resyncBodySchema } from './resync-schema.ts'
import type { Sampler } from './sampler.ts'
import { emptyBodySchema, healthSchema, successSchema } from './schemas.ts'
import { sendToAllRoutes } from './send-to-all.ts'
import { renderStarted, startAnswerSchema } from './start-answer.ts'
import { type CheckRequest, parseCheckBody, parseStartBody } from './start-body.ts'
import { startBodySchema } from './start-schema.ts'
import type { Tokens } from './tokens.ts'

export interface ApiDependencies {
  instance: Instance
  /** Source of the events of `/api/v1/events`. */
  sampler: Sampler
  /** Version of tandem, shown by `/healthz` and `/openapi.json`. */
  version: string
  /** Counts the work of this process, for the metrics. */
  meter?: WorkMeter
  /** Requests must send one of these tokens; null: no token is required. */
  tokens?: Tokens | null
  /** Accepts any Host header, because other machines know this host by various names. Allowed only with a token. */
  anyHost?: boolean
  /** Receives unexpected errors. The response does not contain their text. */
  onInternalError?: (error: unknown) => void
  /** Receives commands and their answers, for the log. */
  exchanges?: ExchangeRecorder
  /** Called at most once a minute, when an address has sent too many requests without a valid token. */
  onTokensRefused?: (refused: RefusedTokens) => void
}

export type Api = ReturnType<typeof createApi>

const unrecorded: ExchangeRecorder = { received: () => {}, answered: () => {} }

/**
 * Paths that need no token. Load balancers and supervisors use `/healthz`. The dashboard asks for the token itself, and
 * neither its files nor the documentation contain anything about a sync.
 */
const openPaths = ['/healthz', ...dashboardPaths, ...docsPaths]

/**
 * mongosync's HTTP API for an instance. It defines only endpoints, shapes and refusals; the instance implements the
 * commands.
 */
export function createApi(dependencies: ApiDependencies) {
  const { instance, sampler, version, meter = new WorkMeter(), tokens = null, anyHost = false } = dependencies
  const { onInternalError = () => {}, onTokensRefused = () => {}, exchanges = unrecorded } = dependencies
  processMetrics() // begins to measure the process and its event loop
  const check = oneAtATime('check', ({ configuration, ...options }: CheckRequest) =>
    instance.check(configuration, options),
  )
  const success = { success: true } as const
  const recorder: CommandRecorder = {
    received: (call) => instance.commandReceived(call),
    answered: (call, admitted) => instance.commandAnswered(call, admitted),
  }
  const noBody = { schema: emptyBodySchema, required: false }

  /** Returns null while the instance is connecting, because `/metrics` must answer then too. */
  const connectedProgress = (): Progress | null => {
    try {
      return instance.progress()
    } catch (error) {
      if (error instanceof RefusedError) return null
      throw error
    }
  }

  const routes = new Hono()
    .use(async (context, next) => {
      context.header('Cache-Control', 'no-store')
      context.header('X-Content-Type-Options', 'nosniff')
      await next()
    })
    .use(auditCommands(recorder, ({ req }) => tokens?.sentIn(req.header('authorization')) ?? 'none'))
    .use(guardHost(anyHost))
    .use(
      tokens === null ? (_context, next) => next() : requireToken(tokens, new FailedTokens(onTokensRefused), openPaths),
    )
    .use(auditAdmitted(recorder))
    .use(recordExchanges(exchanges))

    .post(
      '/api/v1/start',
      describeCommand(
        'start',
        'Begins a sync. Accepted in IDLE only.',
        { schema: startBodySchema, required: true },
        startAnswerSchema,
      ),
      async (context) => {
        const body = await readJsonObject(context.req.raw)
        const configuration = parseStartBody(body)
        exchanges.received({ method: 'POST', uri: context.req.path, body: bodyForLog(JSON.stringify(body)) })
        return context.json(renderStarted(await instance.start(configuration)))
      },
    )
    .all('/api/v1/start', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/check',
      describeCommand(
        'check',
        'Runs all checks that start runs, and additional ones. It changes nothing and reports all findings. Only one check runs at a time.',
        { schema: startBodySchema, required: true },
        findingsAnswerSchema,
      ),
      async (context) =>
        context.json(renderFindings(await check(parseCheckBody(await readJsonObject(context.req.raw))))),
    )
    .all('/api/v1/check', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/pause',
      describeCommand('pause', 'Pauses this instance: RUNNING to PAUSED.', noBody, successSchema),
      async (context) => {
        await readEmptyBody(context.req.raw)
        await instance.pause()
        return context.json(success)
      },
    )
    .all('/api/v1/pause', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/resume',
      describeCommand(
        'resume',
        'Continues a PAUSED instance, or a FAILED one after its cause is fixed.',
        noBody,
        successSchema,
      ),
      async (context) => {
        await readEmptyBody(context.req.raw)
        await instance.resume()
        return context.json(success)
      },
    )
    .all('/api/v1/resume', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/commit',
      describeCommand(
        'commit',
        'Begins the commit, or its rehearsal; accepted when canCommit is true. Poll progress for the result.',
        { schema: commitBodySchema, required: false },
        successSchema,
      ),
      async (context) => {
        await instance.commit(parseCommit(await readJsonObject(context.req.raw)))
        return context.json(success)
      },
    )
    .all('/api/v1/commit', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/abort',
      describeCommand(
        'abort',
        'Aborts a commit that is not decided yet, on all instances: the sync is RUNNING again. The decision is stored shortly before canWrite becomes true. Every instance accepts abort, in RUNNING, PAUSED, COMMITTING and FAILED.',
        noBody,
        successSchema,
      ),
      async (context) => {
        await readEmptyBody(context.req.raw)
        await instance.abort()
        return context.json(success)
      },
    )
    .all('/api/v1/abort', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/reverse',
      describeCommand('reverse', 'Reverses the direction of a COMMITTED reversible sync.', noBody, successSchema),
      async (context) => {
        await readEmptyBody(context.req.raw)
        await instance.reverse()
        return context.json(success)
      },
    )
    .all('/api/v1/reverse', (context) => wrongMethod(context, 'POST'))

    .route('/', sendToAllRoutes(instance))

    .get(
      '/api/v1/progress',
      describeQuery('progress', 'Returns the current status of the sync.', progressAnswerSchema),
      (context) => context.json({ progress: renderProgress(instance.progress()), success: true as const }),
    )
    .all('/api/v1/progress', (context) => wrongMethod(context, 'GET, HEAD'))

    .get(
      '/api/v1/instances',
      describeQuery(
        'instances',
        'Returns the status of every instance of the sync, and their totals.',
        instancesAnswerSchema,
      ),
      async (context) => context.json(renderInstances(await instance.instances())),
    )
    .all('/api/v1/instances', (context) => wrongMethod(context, 'GET, HEAD'))

    .get(
      '/api/v1/collections',
      describeQuery(
        'collections',
        'Returns the progress of each collection: first those with mismatches, then those with the most work left.',
        collectionsAnswerSchema,
        collectionsPage.described,
      ),
      async (context) => {
        const text = writeCollections(await instance.collections(collectionsPage.parse(context.req.query())))
        return context.body(text, 200, { 'Content-Type': 'application/json' })
      },
    )
    .all('/api/v1/collections', (context) => wrongMethod(context, 'GET, HEAD'))

    .route('/', eventRoutes(sampler))

    .get(
      '/api/v1/limits',
      describeQuery('limits', 'Returns the limits on the bulk work of this instance.', limitsAnswerSchema),
      (context) => context.json({ limits: renderLimits(instance.limits()), success: true as const }),
    )
    .patch(
      '/api/v1/limits',
      describeCommand(
        'limit',
        'Changes the given limits of this instance at once; null removes a limit. They survive a restart while there is a sync (not after COMMITTED).',
        { schema: limitsBodySchema, required: true },
        limitsAnswerSchema,
      ),
      async (context) => {
        const limits = await instance.limit(parseLimits(await readJsonObject(context.req.raw)))
        return context.json({ limits: renderLimits(limits), success: true as const })
      },
    )
    .all('/api/v1/limits', (context) => wrongMethod(context, 'GET, HEAD, PATCH'))

    .get(
      '/api/v1/verification/mismatches',
      describeQuery(
        'mismatches',
        'Returns the differences that the last verdict found.',
        mismatchesAnswerSchema,
        mismatchesPage.described,
      ),
      async (context) => {
        const { limit } = mismatchesPage.parse(context.req.query())
        return context.json(renderMismatches(await instance.mismatches(), limit))
      },
    )
    .all('/api/v1/verification/mismatches', (context) => wrongMethod(context, 'GET, HEAD'))

    .post(
      '/api/v1/repair',
      describeCommand(
        'repair',
        'Corrects the documents and definitions that a failed verification reported: makes them equal to the source. Afterwards, send resume, which commits again. If repair has to converge a collection, it aborts the commit; in that case, send commit when canCommit is true, and do not send resume. If several instances share the sync, only the coordinator accepts repair.',
        noBody,
        repairedSchema,
      ),
      async (context) => {
        await readEmptyBody(context.req.raw)
        return context.json({ ...success, ...renderRepaired(await instance.repair()) })
      },
    )
    .all('/api/v1/repair', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/resync',
      describeCommand(
        'resync',
        'Compares collections with the source again and writes what differs. Any instance accepts it in RUNNING, and it applies to all instances. canCommit is false until the resync has ended.',
        { schema: resyncBodySchema, required: true },
        successSchema,
      ),
      async (context) => {
        await instance.resync(parseResync(await readJsonObject(context.req.raw)))
        return context.json(success)
      },
    )
    .all('/api/v1/resync', (context) => wrongMethod(context, 'POST'))

    .post(
      '/api/v1/filter',
      describeCommand(
        'filter',
        'Replaces the filter of the sync, for all instances. Newly included collections are made equal to the source. Newly excluded ones stay on the destination or are dropped. Accepted in RUNNING, PAUSED and FAILED.',
        { schema: filterBodySchema, required: true },
        successSchema,
      ),
      async (context) => {
        await instance.filter(parseFilter(await readJsonObject(context.req.raw)))
        return context.json(success)
      },
    )
    .all('/api/v1/filter', (context) => wrongMethod(context, 'POST'))

    .get(
      '/api/v1/audit',
      describeQuery(
        'audit',
        'Returns the audit trail: who sent which command, newest first.',
        auditAnswerSchema,
        auditPage.described,
      ),
      async (context) => {
        const { limit } = auditPage.parse(context.req.query())
        return context.json(renderAudit(await instance.audit(), limit))
      },
    )
    .all('/api/v1/audit', (context) => wrongMethod(context, 'GET, HEAD'))

    .get(
      '/healthz',
      describeOpenQuery('health', 'Answers while the process runs, with or without a token.', healthSchema),
      (context) => context.json({ ...success, version }),
    )
    .all('/healthz', (context) => wrongMethod(context, 'GET, HEAD'))

  return routes
    .route('/', dashboardRoutes())
    .route('/', docsRoutes())
    .get('/openapi.json', async (context) => {
      const description = "tandem's control interface, compatible with mongosync's."
      return context.json(
        await generateSpecs(routes, {
          documentation: {
            info: { title: 'tandem', version, description },
            components: { securitySchemes: { token: { type: 'http', scheme: 'bearer' } } },
            security: tokens === null ? [] : [{ token: [] }],
          },
        }),
      )
    })
    .all('/openapi.json', (context) => wrongMethod(context, 'GET, HEAD'))
    .get('/metrics', async (context) => {
      context.header('Content-Type', metricsContentType)
      return context.body(await renderMetrics({ progress: connectedProgress(), version, meter }))
    })
    .all('/metrics', (context) => wrongMethod(context, 'GET, HEAD'))
    .notFound((context) => {
      const shown = redactUris(context.req.path.slice(0, 200))
      return failure(
        context,
        404,
        'InvalidRequest',
        `path: ${shown} does not exist; GET /openapi.json lists the endpoints`,
      )
    })
    .onError((error, context) => {
      if (error instanceof RefusedError)
        return failure(context, error.status, error.refusal, redactUris(error.message), error)
      // The message may contain anything, so it goes only to the log.
      onInternalError(error)
      return failure(
        context,
        500,
        'InternalError',
        'tandem met an unexpected error while it answered this request; the log line "request failed" has the cause. Read progress before you send a command again: it may have taken effect. Everything that is stored is kept.',
      )
    })
}
