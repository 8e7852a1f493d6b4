/**
 * Simulates dashboards without browsers. Each one subscribes to the events and requests the collections every five
 * seconds, as the page does.
 */
import { setMaxListeners } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { serveParent } from './child-work.ts'

const requestIntervalMS = 5_000

export interface ViewersInput {
  /** The instance's URL. */
  url: string
  viewers: number
  seconds: number
}

export interface ViewersResult {
  samples: number
  answers: number
  megabytes: number
}

await serveParent(async ({ url, viewers, seconds }: ViewersInput) => async (): Promise<ViewersResult> => {
  const result = { samples: 0, answers: 0, megabytes: 0 }
  const agent = new Agent({ keepAlive: true })
  const until = performance.now() + seconds * 1000
  const ended = AbortSignal.timeout(seconds * 1000)
  setMaxListeners(0, ended)
  const view = async (at: number): Promise<void> => {
    // Spread the viewers over the interval, because people do not open their dashboards at the same moment.
    await delay((at * requestIntervalMS) / viewers)
    get(`${url}/api/v1/events`, { agent, signal: ended }, (events) => {
      events.on('data', (bytes: Buffer) => {
        result.megabytes += bytes.length / 1e6
        if (bytes.includes('event: sample')) result.samples += 1
      })
      events.on('error', () => {})
    }).on('error', () => {})
    while (performance.now() < until) {
      // The instance may close a kept-alive connection at this moment; a browser would repeat the request.
      await request(`${url}/api/v1/collections?limit=100&after=0`, agent)
        .then((bytes) => {
          result.answers += 1
          result.megabytes += bytes / 1e6
        })
        .catch(() => {})
      await delay(requestIntervalMS)
    }
  }
  await Promise.all(Array.from({ length: viewers }, (_, at) => view(at)))
  agent.destroy()
  return result
})

/** Requests the URL and returns the number of bytes of the response's body. */
async function request(url: string, agent: Agent): Promise<number> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    get(url, { agent }, resolve).on('error', reject)
  })
  let length = 0
  for await (const bytes of answer) length += (bytes as Buffer).length
  if (answer.statusCode !== 200) throw new Error(`${url} answered ${answer.statusCode}`)
  return length
}
