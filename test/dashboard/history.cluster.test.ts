import { afterEach, expect, it, vi } from 'vitest'
import { createApi } from '../../src/api/app.ts'
import { Sampler } from '../../src/api/sampler.ts'
import { type ServedApi, serveApi } from '../../src/api/server.ts'
import { KeptPoints } from '../../src/dashboard/kept-points.js'
import { idleProgress } from '../../src/session/report-progress.ts'
import { RecordingInstance } from '../api/recording-instance.ts'
import { keepScreenshot, violations } from './browser.ts'
import { useBrowser } from './use-browser.ts'

/** Tests the charts of an instance that has run for hours. The test sets its history, so the instance needs no clusters. */

const patience = { timeout: 30_000, interval: 100 }
const browser = useBrowser()
let served: ServedApi
let sampler: Sampler

afterEach(async () => {
  await browser.closePages()
  sampler?.close()
  await served?.close()
})

it('shows the history of ten minutes, or of hours if the user selects that', async () => {
  const instance = new RecordingInstance()
  const progress = {
    ...idleProgress,
    state: 'RUNNING' as const,
    mongosyncID: 'a',
    lagTimeSeconds: 2,
    totalEventsApplied: 7,
  }
  instance.shown = progress
  instance.rows = [
    { mongosyncID: 'a', coordinator: true, status: 'alive', lastSeenSeconds: 0, partitions: [0], progress },
  ]
  const kept = new KeptPoints()
  // Two hours ago the lag was 50 minutes.
  const now = Date.now()
  for (let ago = 2.5 * 3_600; ago > 0; ago -= 1) kept.add([now - ago * 1_000, 0, 1, 7, ago === 7_200 ? 3_000 : 2])
  sampler = new Sampler(instance, { onInternalError: () => {}, kept })
  served = await serveApi({ api: createApi({ instance, sampler, version: '1.2.3' }), port: 0 })
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const viewport of [
      { width: 1400, height: 900 },
      { width: 360, height: 780 },
    ]) {
      const one = await browser.open(`http://127.0.0.1:${served.port}/`, { colorScheme, viewport })
      const lag = (expected: string): Promise<void> =>
        vi.waitFor(async () => {
          expect(await one.page.getAttribute('#lag-chart svg', 'aria-label')).toBe(expected)
        }, patience)
      await lag('Lag: 2 s now, at most 2 s in the last 10 minutes')
      await one.page.selectOption('#range', 'the last hour')
      await lag('Lag: 2 s now, at most 2 s in the last hour')
      await one.page.selectOption('#range', 'the last 24 hours')
      await lag('Lag: 2 s now, at most 50 min in the last 3 hours')
      expect(await one.page.textContent('#lag-chart .axis')).toBe('3 h agonow')
      expect(await violations(one.page)).toEqual([])
      expect(await one.page.evaluate('document.documentElement.scrollWidth')).toBe(viewport.width)
      await keepScreenshot(one.page, `history-${colorScheme}-${viewport.width}`)
      expect(one.complaints).toEqual([])
    }
  }
})
