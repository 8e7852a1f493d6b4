/** Dashboards without browsers: each hears the events and asks for the collections every five seconds, as the page does. */
import { setMaxListeners } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { serveParent } from './child-work.ts'

const askEveryMS = 5_000

export interface ViewersInput {
  /** Of the instance. */
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
    // They were not opened at the same moment.
    await delay((at * askEveryMS) / viewers)
    get(`${url}/api/v1/events`, { agent, signal: ended }, (events) => {
      events.on('data', (bytes: Buffer) => {
        result.megabytes += bytes.length / 1e6
        if (bytes.includes('event: sample')) result.samples += 1
      })
      events.on('error', () => {})
    }).on('error', () => {})
    while (performance.now() < until) {
      // A connection kept open may be closed by the instance just then: a browser asks again.
      await ask(`${url}/api/v1/collections?limit=100&after=0`, agent)
        .then((bytes) => {
          result.answers += 1
          result.megabytes += bytes / 1e6
        })
        .catch(() => {})
      await delay(askEveryMS)
    }
  }
  await Promise.all(Array.from({ length: viewers }, (_, at) => view(at)))
  agent.destroy()
  return result
})

/** How many bytes it was answered. */
async function ask(url: string, agent: Agent): Promise<number> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    get(url, { agent }, resolve).on('error', reject)
  })
  let length = 0
  for await (const bytes of answer) length += (bytes as Buffer).length
  if (answer.statusCode !== 200) throw new Error(`answered ${answer.statusCode}`)
  return length
}
