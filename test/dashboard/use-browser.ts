import type { Browser } from 'playwright-core'
import { afterAll, beforeAll } from 'vitest'
import { launchBrowser, type OpenedPage, openDashboard } from './browser.ts'

type Options = Parameters<typeof openDashboard>[2]

/** Provides a browser for a test file, and its open pages. Registers hooks, so call it where vitest allows hooks to be registered. */
export function useBrowser() {
  let browser: Browser
  let opened: OpenedPage[] = []
  beforeAll(async () => {
    browser = await launchBrowser()
  })
  afterAll(() => browser?.close())
  return {
    open: async (url: string, options?: Options): Promise<OpenedPage> => {
      const one = await openDashboard(browser, url, options)
      opened.push(one)
      return one
    },
    /** Closes all pages. Call it after each test, before the instances stop. */
    closePages: async (): Promise<void> => {
      await Promise.all(opened.map(({ close }) => close()))
      opened = []
    },
  }
}
