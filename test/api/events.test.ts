import { createConnection } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import * as v from 'valibot'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { createApi } from '../../src/api/app.ts'
import { sampleSchema } from '../../src/api/sample-schema.ts'
import { type Listener, Sampler } from '../../src/api/sampler.ts'
import { type ServedApi, type ServeOptions, serveApi } from '../../src/api/server.ts'
import { KeptPoints } from '../../src/dashboard/kept-points.js'
import { RefusedError } from '../../src/domain/errors.ts'
import type { InstanceRow } from '../../src/domain/instances.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest, RecordingInstance } from './recording-instance.ts'

const patience = { timeout: 10_000, interval: 5 }
const row = (id: string, warnings: string[] = []): InstanceRow => ({
  mongosyncID: id,
  coordinator: id === 'a',
  status: 'alive',
  lastSeenSeconds: 0,
  partitions: [0],
  progress: {
    ...idleProgress,
    state: 'RUNNING',
    mongosyncID: id,
    lagTimeSeconds: 2,
    totalEventsApplied: 7,
    collectionCopy: { estimatedTotalBytes: 100, estimatedCopiedBytes: 40 },
    ...(warnings.length > 0 && { warnings }),
  },
})

class CountedInstance extends RecordingInstance {
  reads = 0
  override async instances() {
    this.reads += 1
    return await super.instances()
  }
}

class CountedSampler extends Sampler {
  listening = 0
  override listen(listener: Listener): () => void {
    this.listening += 1
    const stop = super.listen(listener)
    return () => {
      this.listening -= 1
      stop()
    }
  }
}

function sampled({ everyMS = 10, withoutListenersMS = 20, kept = new KeptPoints() } = {}) {
  const instance = new CountedInstance()
  instance.rows = [row('a')]
  instance.shown = row('a').progress
  const errors: unknown[] = []
  const onInternalError = (error: unknown) => errors.push(error)
  const sampler = new CountedSampler(instance, { onInternalError, everyMS, withoutListenersMS, kept })
  return { instance, sampler, errors }
}

function listening(sampler: Sampler) {
  const received: Uint8Array[] = []
  const state = { ended: false }
  const stop = sampler.listen({
    send: (event) => received.push(event),
    end: () => {
      state.ended = true
    },
  })
  return { received, state, stop, events: () => received.map(parsed) }
}

function parsed(event: Uint8Array) {
  const [, name, data] = /^event: (\w+)\ndata: (.*)\n\n$/s.exec(new TextDecoder().decode(event)) ?? []
  return { name, data: JSON.parse(data ?? 'null') }
}

describe('the sampler', () => {
  test('samples once for two hundred listeners, which receive the same bytes', async () => {
    const { instance, sampler } = sampled()
    const all = Array.from({ length: 200 }, () => listening(sampler))
    await vi.waitFor(() => expect(all[0]?.received.length).toBeGreaterThan(5), patience)
    sampler.close()
    const samples = all.map(({ received }) => received.slice(1))
    for (const one of samples) for (const [at, event] of one.entries()) expect(event).toBe(samples[0]?.[at])
    expect(instance.reads - (samples[0]?.length ?? 0)).toBeLessThanOrEqual(1)
    expect(all.every(({ state }) => state.ended)).toBe(true)
  })

  test('a sample is the answer of instances, with the progress and the id of the instance that sends it', async () => {
    const { sampler } = sampled()
    const { received, events } = listening(sampler)
    await vi.waitFor(() => expect(received.length).toBeGreaterThan(1), patience)
    sampler.close()
    const [history, sample] = events()
    expect(history).toEqual({ name: 'history', data: { points: [] } })
    expect(v.safeParse(sampleSchema, sample?.data).issues).toBeUndefined()
    expect(sample).toMatchObject({ name: 'sample', data: { self: 'a', problem: null, totals: { percent: 40 } } })
    const lag = { overallLagSeconds: 2, crudLagSeconds: 2, ddlLagSeconds: 2 }
    expect(sample?.data.instances).toEqual([{ ...row('a'), progress: { ...row('a').progress, lag } }])
  })

  test('stops sampling when the last listener has left, and remembers the last sample', async () => {
    const { instance, sampler } = sampled()
    const first = listening(sampler)
    await vi.waitFor(() => expect(first.received.length).toBeGreaterThan(3), patience)
    first.stop()
    const reads = instance.reads
    await sleep(100)
    expect(instance.reads - reads).toBeLessThanOrEqual(1)
    const { points } = listening(sampler).events()[0]?.data ?? {}
    sampler.close()
    expect(points.length).toBeGreaterThanOrEqual(3)
    expect(points[0].slice(1)).toEqual([40, 100, 7, 2])
  })

  test('removes samples that are older than the retention time', async () => {
    const kept = new KeptPoints({ fineMS: 40, keptMS: 80, coarseMS: 20 })
    const { sampler } = sampled({ everyMS: 5, kept })
    const { received } = listening(sampler)
    await vi.waitFor(() => expect(received.length).toBeGreaterThan(40), patience)
    const now = Date.now()
    const { points } = listening(sampler).events()[0]?.data ?? {}
    sampler.close()
    expect(points.length).toBeLessThan(30)
    for (const [at] of points) expect(at).toBeGreaterThanOrEqual(now - 80)
  })

  test('without listeners, records totals while a sync exists; samples at once for a new listener', async () => {
    const { instance, sampler } = sampled({ everyMS: 10, withoutListenersMS: 20 })
    const { shown } = instance
    instance.shown = idleProgress
    sampler.record()
    await sleep(60)
    expect(instance.reads).toBe(0)
    instance.shown = shown
    await vi.waitFor(() => expect(instance.reads).toBeGreaterThan(3), patience)
    const [history] = listening(sampler).events()
    expect(history?.data.points.length).toBeGreaterThanOrEqual(3)
    sampler.close()
    const reads = instance.reads
    await sleep(60)
    expect(instance.reads - reads).toBeLessThanOrEqual(1)

    const slow = sampled({ withoutListenersMS: 60_000 })
    slow.sampler.record()
    await vi.waitFor(() => expect(slow.instance.reads).toBe(1), patience)
    const { received, stop } = listening(slow.sampler)
    await vi.waitFor(() => expect(received.length).toBeGreaterThan(3), patience)
    stop()
    // `disconnect` ends the connections of all listeners, and the recording continues.
    const again = listening(slow.sampler)
    slow.sampler.disconnect()
    expect(again.state.ended).toBe(true)
    const { received: next } = listening(slow.sampler)
    await vi.waitFor(() => expect(next.length).toBeGreaterThan(2), patience)
    slow.sampler.close()
  })

  test('reports the problem while sampling fails, and continues once it succeeds', async () => {
    const { instance, sampler, errors } = sampled()
    const { progress } = instance
    instance.progress = () => {
      throw new RefusedError('ClusterUnreachable', 'connecting to mongodb://root:hunter2@db.test/')
    }
    const { received, events } = listening(sampler)
    await vi.waitFor(() => expect(received.length).toBeGreaterThan(1), patience)
    expect(events()[1]?.data).toMatchObject({
      progress: null,
      instances: [],
      problem: expect.stringMatching(/^connecting to/),
      problemError: 'ClusterUnreachable',
    })
    expect(JSON.stringify(events())).not.toContain('hunter2')
    instance.progress = progress
    await vi.waitFor(() => expect(events().at(-1)?.data.problem).toBeNull(), patience)
    instance.instances = () => Promise.reject(new Error('hunter2'))
    await vi.waitFor(() => expect(events().at(-1)?.data.problem).toContain('"request failed"'), patience)
    sampler.close()
    expect(JSON.stringify(events())).not.toContain('hunter2')
    expect(errors).not.toEqual([])
  })
})

describe('GET /api/v1/events', () => {
  const open: ServedApi[] = []
  afterEach(async () => {
    await Promise.all(open.splice(0).map((server) => server.close()))
  })

  async function served(parts = sampled(), options: Partial<ServeOptions> = {}) {
    const { instance, sampler } = parts
    const api = createApi({ instance, sampler, version: '1.2.3' })
    const server = await serveApi({ api, port: 0, onClosing: () => sampler.close(), ...options })
    open.push(server)
    return { ...parts, server, url: `http://127.0.0.1:${server.port}/api/v1/events` }
  }

  test('is a stream of events that continues beyond the time limit of requests', async () => {
    const { url, sampler } = await served(sampled({ everyMS: 200 }), {
      headersTimeoutSeconds: 0.2,
      requestTimeoutSeconds: 0.2,
    })
    // On a busy machine the limit can pass before the server has received the request, which it then rejects with 408.
    const response = await vi.waitFor(async () => {
      const answer = await fetch(url)
      expect(answer.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
      return answer
    }, patience)
    expect(response.headers.get('cache-control')).toBe('no-store')
    let text = ''
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    while (text.split('event: sample').length < 10) text += new TextDecoder().decode((await reader.read()).value)
    expect(text).toMatch(/^retry: 1000\n\nevent: history\ndata: .*\n\nevent: sample\ndata: /)
    await reader.cancel()
    await vi.waitFor(() => expect(sampler.listening).toBe(0), patience)
  })

  test('ends when the server closes, and does not delay the close', async () => {
    const { url, server } = await served()
    const response = await fetch(url)
    const read = response.text()
    const began = performance.now()
    await server.close()
    expect(performance.now() - began).toBeLessThan(1_500)
    expect(await read).toContain('event: history')
  })

  test('a client that does not read is disconnected', async () => {
    const parts = sampled({ everyMS: 1 })
    parts.instance.rows = Array.from({ length: 100 }, (_, at) => row(`i${at}`, ['x'.repeat(2_000)]))
    const { server, sampler } = await served(parts)
    const socket = createConnection(server.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.pause()
    socket.write('GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n')
    await vi.waitFor(() => expect(sampler.listening).toBe(1), patience)
    await vi.waitFor(() => expect(sampler.listening).toBe(0), patience)
    const closed = new Promise((resolve) => socket.once('close', resolve))
    socket.resume()
    await closed
  })

  test('is refused to foreign pages, has no body for HEAD, and accepts only GET', async () => {
    const { get, post, api } = apiUnderTest()
    for (const headers of [{ host: 'rebound.test' }, { origin: 'http://evil.test' }]) {
      expect((await get('/api/v1/events', headers as Record<string, string>)).status).toBe(403)
    }
    expect((await post('/api/v1/events')).headers.get('allow')).toBe('GET, HEAD')
    const head = await api.request('/api/v1/events', { method: 'HEAD' })
    expect([head.status, head.body]).toEqual([200, null])
  })
})
