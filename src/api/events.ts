import type { HttpBindings } from '@hono/node-server'
import { Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { wrongMethod } from './answers.ts'
import { commonFailures } from './describe-endpoint.ts'
import { sampleSchema } from './sample-schema.ts'
import type { Sampler } from './sampler.ts'

/** `GET /api/v1/events`: the state of the sync as server-sent events. */

/** Maximum number of unread bytes for one client. Each sample is in memory only once, for all clients. */
const unreadBytesMax = 256 * 1024
/** Milliseconds after which an EventSource reconnects by itself. */
const retryMS = 1_000

const description = describeRoute({
  operationId: 'events',
  summary:
    'Sends server-sent events: first `history`, then a `sample` each second. The history has the totals of every sample of the last ten minutes and of one sample a minute of the last day, but none from before the process was started.',
  responses: {
    200: {
      description: 'The stream lasts until the client or the server closes it. The data of each `sample` is JSON.',
      content: { 'text/event-stream': { schema: resolver(sampleSchema) } },
    },
    ...commonFailures,
  },
})

export function eventRoutes(sampler: Sampler): Hono<{ Bindings: Partial<HttpBindings> }> {
  const routes = new Hono<{ Bindings: Partial<HttpBindings> }>()
  routes.get('/api/v1/events', description, (context) => {
    context.header('Content-Type', 'text/event-stream; charset=utf-8')
    if (context.req.method === 'HEAD') return context.body(null)
    // The bindings are absent for a request from within this process.
    return context.body(eventStream(sampler, () => context.env?.outgoing?.destroy()))
  })
  routes.all('/api/v1/events', (context) => wrongMethod(context, 'GET, HEAD'))
  return routes
}

/**
 * The stream of one client. A client that does not read is disconnected. It may reconnect, and misses only outdated
 * samples.
 */
function eventStream(sampler: Sampler, disconnect: () => void): ReadableStream<Uint8Array<ArrayBuffer>> {
  let leave = (): void => {}
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(`retry: ${retryMS}\n\n`))
        leave = sampler.listen({
          send: (event) => {
            if ((controller.desiredSize ?? 0) > 0) controller.enqueue(event)
            else {
              leave()
              // `disconnect` cancels the stream, which calls `leave` again.
              leave = () => {}
              controller.close()
              disconnect()
            }
          },
          end: () => controller.close(),
        })
      },
      cancel: () => leave(),
    },
    { highWaterMark: unreadBytesMax, size: ({ byteLength }) => byteLength },
  )
}
