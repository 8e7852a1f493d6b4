import { existsSync, mkdirSync } from 'node:fs'
import path from 'node:path'
import chromium from '@sparticuz/chromium'
import axe from 'axe-core'
import { type Browser, type BrowserContext, type Page, chromium as playwright } from 'playwright-core'
import { repositoryRoot } from '../support/mongo-binaries.ts'

const installed = '/usr/bin/chromium'
const screenshots = path.join(repositoryRoot, '.cache/screenshots')

/** Launches a headless Chromium: the installed browser, or else the browser of the npm package. */
export async function launchBrowser(): Promise<Browser> {
  const executablePath = existsSync(installed) ? installed : await chromium.executablePath()
  // With the arguments of the package, Chromium would run as one process, which ends when the first page is closed.
  return await playwright.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
}

export interface OpenedPage {
  page: Page
  /** Errors that the browser reported, except failed connections, which are expected while an instance restarts. */
  complaints: string[]
  close(): Promise<void>
}

export async function openDashboard(
  browser: Browser,
  url: string,
  options: Parameters<Browser['newContext']>[0] = {},
): Promise<OpenedPage> {
  const context: BrowserContext = await browser.newContext(options)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    const restarting = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/
    if (message.type() === 'error' && !restarting.test(message.text())) complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  await page.goto(url)
  return { page, complaints, close: () => context.close() }
}

/** Returns a text for each violation of an accessibility rule: the rule, the element and what is wrong with it. */
export async function violations(page: Page): Promise<string[]> {
  // The page's content security policy forbids foreign scripts, so the debugger injects this one.
  const session = await page.context().newCDPSession(page)
  await session.send('Runtime.evaluate', { expression: axe.source })
  const run = 'axe.run(document, { resultTypes: ["violations"] })'
  const found = (await page.evaluate(run)) as {
    violations: { id: string; nodes: { html: string; failureSummary: string }[] }[]
  }
  await session.detach()
  return found.violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`))
}

/**
 * Keeps a screenshot for people who review the tested page.
 * @param fullPage false for a page that is too long for one picture
 */
export async function keepScreenshot(page: Page, name: string, fullPage = true): Promise<void> {
  mkdirSync(screenshots, { recursive: true })
  await page.screenshot({ path: path.join(screenshots, `${name}.png`), fullPage })
}
