import { writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Page } from 'playwright-core'
import { afterEach, expect, it, vi } from 'vitest'
import { commands } from '../../src/dashboard/commands.js'
import { pairedSets } from '../support/paired-sets.ts'
import { startTandem, type Tandem } from '../support/tandem-process.ts'
import { keepScreenshot, type OpenedPage, violations } from './browser.ts'
import { useBrowser } from './use-browser.ts'

/** Tests the dashboard of an instance that requires a token. */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 50 }
const token = 'b2'.repeat(20)
const browser = useBrowser()
let tandem: Tandem

afterEach(async () => {
  await browser.closePages()
  await tandem?.stop()
})

const start = (requiredToken: string, port?: number, more: string[] = []): Promise<Tandem> =>
  startTandem({
    cluster0: pair.source.uri,
    cluster1: pair.destination.uri,
    extraArgs: ['--token', requiredToken, ...more],
    ...(port === undefined ? {} : { port }),
  })
const command = async (name: string, body: object): Promise<number> => {
  const headers = { Authorization: `Bearer ${token}` }
  const init = { method: 'POST', headers, body: JSON.stringify(body) }
  return (await fetch(`${tandem.url}/api/v1/${name}`, init)).status
}
const open = (viewport = { width: 1400, height: 900 }): Promise<OpenedPage> =>
  browser.open(`${tandem.url}/`, { viewport })
const shows = (page: Page, selector: string, expected: string | RegExp): Promise<void> =>
  vi.waitFor(async () => expect(await page.textContent(selector)).toMatch(expected), patience)
const promptShown = (page: Page): Promise<unknown> => page.waitForSelector('#access', { state: 'visible' })
/** Enters a token with the keyboard. */
async function enterToken(page: Page, text: string): Promise<void> {
  await promptShown(page)
  await page.focus('#token')
  await page.keyboard.type(text)
  await page.keyboard.press('Enter')
}

it('asks for the token, shows the sync once it is entered, and sends commands with it', async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  tandem = await start(token)
  await vi.waitFor(async () => {
    expect(await command('start', { source: 'cluster0', destination: 'cluster1' })).toBe(200)
  }, patience)
  const { page, complaints } = await open()
  await promptShown(page)
  expect(await page.evaluate('document.activeElement.id')).toBe('token')
  expect(await violations(page)).toEqual([])
  await keepScreenshot(page, 'token')
  await enterToken(page, `${token}x`)
  await shows(page, '#access-note', 'That is not the token of this instance.')
  await enterToken(page, 'with a space')
  await shows(page, '#access-note', 'A token consists of printable characters')
  await page.fill('#token', '')
  await enterToken(page, token)
  await shows(page, '#state', 'RUNNING')
  await shows(page, '#collection-rows', 'app.things')
  await shows(page, '#connection', 'live')
  expect(await page.isVisible('#access')).toBe(false)

  // The token is kept for this tab only, and never on disk.
  await page.reload()
  await shows(page, '#state', 'RUNNING')
  expect(await page.evaluate('[localStorage.length, document.cookie, location.search]')).toEqual([0, '', ''])
  const { page: other } = await open({ width: 360, height: 780 })
  await promptShown(other)
  expect(await other.evaluate('document.documentElement.scrollWidth')).toBe(360)
  expect(await violations(other)).toEqual([])

  await vi.waitFor(async () => expect(await page.getAttribute('#pause', 'aria-disabled')).toBe('false'), patience)
  await page.click('#pause')
  await page.click('#dialog-confirm')
  await shows(page, '#outcome', /pause accepted by/)
  await shows(page, '#state', 'PAUSED')
  expect(complaints.filter((text) => !/status of 401/.test(text))).toEqual([])
})

it('shows the sync with the read-only token, and sends no command until the other token is entered', async () => {
  const readToken = 'd4'.repeat(20)
  const file = path.join(pair.source.folder, 'read-token')
  writeFileSync(file, readToken, { mode: 0o600 })
  tandem = await start(token, undefined, ['--readTokenFile', file])
  await vi.waitFor(async () => {
    expect(await command('start', { source: 'cluster0', destination: 'cluster1' })).toBe(200)
  }, patience)
  const { page, complaints } = await open()
  await enterToken(page, readToken)
  await shows(page, '#state', 'RUNNING')
  for (const name of commands) {
    expect(await page.getAttribute(`#${name}`, 'aria-disabled')).toBe('true')
    expect(await page.textContent(`#why-not-${name}`)).toBe('the token is read-only')
  }
  expect(await violations(page)).toEqual([])
  await keepScreenshot(page, 'read-only')
  await page.setViewportSize({ width: 360, height: 780 })
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)

  await page.click('#enter-control-token')
  expect(await page.evaluate('document.activeElement.id')).toBe('token')
  await shows(page, '#access-note', 'Enter the token of --tokenFile')
  expect(await page.textContent('#connection')).toMatch('live')
  await enterToken(page, token)
  await vi.waitFor(async () => expect(await page.getAttribute('#pause', 'aria-disabled')).toBe('false'), patience)
  expect(await page.isVisible('#read-only')).toBe(false)
  await page.click('#pause')
  await page.click('#dialog-confirm')
  await shows(page, '#outcome', /pause accepted by/)
  await shows(page, '#state', 'PAUSED')
  // The page has sent no request with the read-only token that this token does not allow.
  expect(complaints.filter((text) => !/status of 401/.test(text))).toEqual([])
})

it('asks again when the instance requires another token', async () => {
  tandem = await start(token)
  const { page } = await open()
  await enterToken(page, token)
  await shows(page, '#connection', 'live')
  await tandem.stop()
  await shows(page, '#connection', 'reconnecting')
  const another = 'c3'.repeat(20)
  tandem = await start(another, Number(new URL(tandem.url).port))
  await shows(page, '#access-note', 'That is not the token of this instance.')
  await enterToken(page, another)
  await shows(page, '#connection', 'live')
})

it('does not send a refused command again when another token is entered', async () => {
  tandem = await start(token)
  await vi.waitFor(async () => {
    expect(await command('start', { source: 'cluster0', destination: 'cluster1' })).toBe(200)
  }, patience)
  const { page } = await open()
  await enterToken(page, token)
  await vi.waitFor(async () => expect(await page.getAttribute('#pause', 'aria-disabled')).toBe('false'), patience)
  // The open stream continues, and the next request has an invalid token.
  await page.evaluate(`sessionStorage.setItem('tandem token', '${token}x')`)
  await page.click('#pause')
  await page.click('#dialog-confirm')
  await shows(page, '#access-note', 'Enter it, then send the command again.')
  await enterToken(page, token)
  await shows(page, '#outcome', 'Enter the token, then send the command again.')
  await shows(page, '#collections-note', /in all|None yet/)
  expect(await page.textContent('#state')).toBe('RUNNING')
})
