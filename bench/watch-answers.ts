import { setTimeout as delay } from 'node:timers/promises'
import type { Tandem } from '../test/support/tandem-process.ts'
import { quantile } from './measure.ts'

const intervalMS = 250
/** The requests of the dashboard. */
const paths = ['/api/v1/progress', '/api/v1/collections?limit=100&after=0']

/**
 * Repeats the dashboard's requests one after the other until the returned function is called. That function returns the
 * median and the 99th percentile of their durations in milliseconds.
 */
export function watchAnswers({ url }: Tandem): () => Promise<{ p50: number; p99: number }> {
  const took: number[] = []
  let stopped = false
  const watching = (async () => {
    while (!stopped) {
      for (const path of paths) {
        const began = performance.now()
        const answer = await fetch(`${url}${path}`)
        await answer.arrayBuffer()
        if (answer.status !== 200) throw new Error(`${path} answered ${answer.status}`)
        took.push(performance.now() - began)
      }
      await delay(intervalMS)
    }
  })()
  watching.catch(() => {}) // The caller that stops the watch receives this error.
  return async () => {
    stopped = true
    await watching
    return { p50: quantile(took, 0.5), p99: quantile(took, 0.99) }
  }
}
