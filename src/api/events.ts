import type { HttpBindings } from '@hono/node-server'
import { Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { wrongMethod } from './answers.ts'
import { sampleSchema } from './sample-schema.ts'
import type { Sampler } from './sampler.ts'

/** `GET /api/v1/events`: how the sync is, as server-sent events. */

/** Of what a client has not read; the bytes themselves are the same for all clients. */
const unreadBytesMax = 256 * 1024
/** How soon an EventSource comes back by itself; ms. */
const retryMS = 1_000

const description = describeRoute({
  operationId: 'events',
  summary:
    'Server-sent events: `history` once (the totals of the last ten minutes, as far as somebody listened), then a `sample` each second.',
  responses: {
    200: {
      description: 'Goes on until the client or the server closes. The data of each `sample` is JSON.',
      content: { 'text/event-stream': { schema: resolver(sampleSchema) } },
    },
  },
})

export function eventRoutes(sampler: Sampler): Hono<{ Bindings: Partial<HttpBindings> }> {
  const routes = new Hono<{ Bindings: Partial<HttpBindings> }>()
  routes.get('/api/v1/events', description, (context) => {
    context.header('Content-Type', 'text/event-stream; charset=utf-8')
    if (context.req.method === 'HEAD') return context.body(null)
    // The bindings are absent where a request is made within the process.
    return context.body(eventStream(sampler, () => context.env?.outgoing?.destroy()))
  })
  routes.all('/api/v1/events', (context) => wrongMethod(context, 'GET, HEAD'))
  return routes
}

/** What one client is sent. A client that does not read is cut off: it may come back, and misses only what is old by then. */
function eventStream(sampler: Sampler, cut: () => void): ReadableStream<Uint8Array<ArrayBuffer>> {
  let leave = (): void => {}
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(`retry: ${retryMS}\n\n`))
        leave = sampler.listen({
          hear: (event) => {
            if ((controller.desiredSize ?? 0) > 0) controller.enqueue(event)
            else {
              leave()
              // Cutting it off cancels the stream.
              leave = () => {}
              controller.close()
              cut()
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
