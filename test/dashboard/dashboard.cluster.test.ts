import type { Page } from 'playwright-core'
import { afterEach, expect, it, vi } from 'vitest'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import type { Tandem } from '../support/tandem-process.ts'
import { keepScreenshot, type OpenedPage, violations } from './browser.ts'
import { useBrowser } from './use-browser.ts'

/** Tests the dashboard as its users see it, with a real browser, real instances and real clusters. */

const pair = pairedSets()
const patience = { timeout: 60_000, interval: 100 }
const body = {
  source: 'cluster0',
  destination: 'cluster1',
  reversible: true,
  enableUserWriteBlocking: 'sourceAndDestination',
}
const wide = { width: 1400, height: 900 }
const narrow = { width: 360, height: 780 }
const browser = useBrowser()
let instances: Instances

afterEach(async () => {
  await browser.closePages()
  await instances?.stop()
})

async function begin(documents: number, ids = ['a', 'b']): Promise<Tandem> {
  const text = 'x'.repeat(500)
  const things = pair.sourceClient.db('app').collection<{ _id: number; text: string }>('things')
  await things.insertMany(Array.from({ length: documents }, (_, _id) => ({ _id, text })))
  instances = await startInstances(ids, { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
  return instances.members.get('a') as Tandem
}

const open = (of: Tandem, options: Parameters<typeof browser.open>[1] = {}): Promise<OpenedPage> =>
  browser.open(`${of.url}/`, { viewport: wide, ...options })

const text = async (page: Page, selector: string): Promise<string> => (await page.textContent(selector)) ?? ''
const shows = (page: Page, selector: string, expected: string | RegExp): Promise<void> =>
  vi.waitFor(async () => expect(await text(page, selector)).toMatch(expected), patience)
const isEnabled = async (page: Page, command: string): Promise<boolean> =>
  (await page.getAttribute(`#${command}`, 'aria-disabled')) === 'false'
const enabled = (page: Page, command: string): Promise<void> =>
  vi.waitFor(async () => expect(await isEnabled(page, command)).toBe(true), patience)

/** Sends a command through the dialog, using only the keyboard. Commit and reverse require their name to be typed. */
async function send(page: Page, command: string, effect: RegExp): Promise<void> {
  await enabled(page, command)
  await page.focus(`#${command}`)
  await page.keyboard.press('Enter')
  await page.waitForSelector('#dialog[open]')
  expect(await text(page, '#dialog-effect')).toMatch(effect)
  expect(await text(page, '#dialog-to')).toBe('Sent to a and b.')
  if (command === 'commit' || command === 'reverse') await typeToConfirm(page, command)
  else {
    expect(await page.evaluate('document.activeElement.id')).toBe('dialog-cancel')
    await page.keyboard.press('Tab')
  }
  await page.keyboard.press('Enter')
  await shows(page, '#outcome', new RegExp(`${command} accepted by a and b`))
}

/** Types the word that confirms a commit or a reversal, and checks that no other text confirms the command. */
async function typeToConfirm(page: Page, word: string): Promise<void> {
  expect(await page.evaluate('document.activeElement.id')).toBe('dialog-word')
  for (const typed of ['', word.slice(0, -1)]) {
    await page.fill('#dialog-word', typed)
    expect(await page.getAttribute('#dialog-confirm', 'aria-disabled')).toBe('true')
    await page.keyboard.press('Enter')
    await page.click('#dialog-confirm', { force: true })
    expect(await page.isVisible('#dialog')).toBe(true)
  }
  await page.fill('#dialog-word', word)
  expect(await page.getAttribute('#dialog-confirm', 'aria-disabled')).toBe('false')
}

it('shows a sync from IDLE through a commit and a reversal, and sends commands to all instances', async () => {
  const a = await begin(6_000)
  for (const { url } of instances.members.values()) {
    const limits = JSON.stringify({ bytesPerSecond: 1_048_576 })
    expect((await fetch(`${url}/api/v1/limits`, { method: 'PATCH', body: limits })).status).toBe(200)
  }
  const { page, complaints } = await open(a)
  await shows(page, '#info', 'No sync has been started')
  expect(await text(page, '#why-not-pause')).toBe('no sync has been started')
  for (const detail of ['#copy-detail', '#verification-detail']) expect(await text(page, detail)).toBe('not begun')

  // At 1 MB per second, the copy takes long enough to be observed.
  expectAccepted(await instances.post('start', body))
  await shows(page, '#state', 'RUNNING')
  await shows(page, '#why-not-commit', /^the (copy|first verification) has not ended \(\d/)
  expect(await isEnabled(page, 'commit')).toBe(false)
  await page.click('#commit', { force: true })
  expect(await page.isVisible('#dialog')).toBe(false)
  await shows(page, '#copy-share', '100.00 %')
  await shows(page, '#phases [aria-current=step]', 'Following changes')
  await shows(page, '#rows', /coordinator/)
  await shows(page, '#rows', /1\.0 MB\/s, \d+ reads?, (?:\d+ of )?\d+ writes? at a time/)
  expect(await page.locator('#rows tr').count()).toBe(2)

  const before = Number(await eventsShown(page))
  await pair.sourceClient
    .db('app')
    .collection('things')
    .updateMany({}, { $set: { n: 1 } })
  await vi.waitFor(async () => expect(Number(await eventsShown(page))).toBeGreaterThanOrEqual(before + 6_000), patience)
  const label = await page.getAttribute('#events-chart svg', 'aria-label')
  expect(label).toMatch(/^Events applied: [\d,]+\/s now, at most [1-9][\d,]*\/s in the last \d+ minutes$/)

  await enabled(page, 'commit')
  const commandsOf = (list: string) => page.locator(`#${list} button`).allTextContents()
  expect(await commandsOf('commands')).toEqual(['Pause', 'Resume', 'Abort'])
  expect(await commandsOf('cutover')).toEqual(['Commit', 'Reverse'])
  await page.click('#commit')
  await page.keyboard.press('Escape')
  expect((await a.progress()).state).toBe('RUNNING')
  await send(page, 'pause', /^Pauses all 2 instances/)
  await shows(page, '#state', 'PAUSED')
  await instances.allReach(({ state }) => state === 'PAUSED', 'PAUSED')
  await shows(page, '#why-not-commit', 'instance a is PAUSED')
  await send(page, 'resume', /^Every instance that is PAUSED or FAILED continues/)
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  await send(
    page,
    'commit',
    /^Ends the migration on all 2 instances\. .* writes on cluster1: .* are allowed afterwards/,
  )
  await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  await shows(page, '#can-write', /^allowed$/)
  await showsAudit(page)
  await send(page, 'reverse', /^Swaps the direction of the sync on all 2 instances/)
  await instances.allReach(({ state, canCommit }) => state === 'RUNNING' && canCommit, 'reversed', 120)
  await shows(page, '#direction', /^cluster1: .* → {2}cluster0/)
  expect(complaints).toEqual([])
})

it('has no accessibility violations in light and dark mode, on wide and narrow screens', async () => {
  const a = await begin(500)
  const { page: idle } = await open(a)
  await shows(idle, '#state', 'IDLE')
  expect(await violations(idle)).toEqual([])
  await keepScreenshot(idle, 'idle')
  expectAccepted(await instances.post('start', body))
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const viewport of [wide, narrow]) {
      const { page, complaints } = await open(a, { colorScheme, viewport })
      await enabled(page, 'commit')
      expect(await violations(page)).toEqual([])
      await keepScreenshot(page, `${colorScheme}-${viewport.width}`)
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(viewport.width)
      await page.click('#commit')
      await page.waitForSelector('#dialog[open]')
      expect(await violations(page)).toEqual([])
      await keepScreenshot(page, `${colorScheme}-${viewport.width}-commit`)
      expect(complaints).toEqual([])
    }
  }
})

it('shows for each collection what is copied, built and compared, and how many documents differ', async () => {
  const things = pair.sourceClient.db('app').collection('things')
  await things.createIndex({ text: 1 })
  await things.createIndex({ n: 1 }, { unique: true, sparse: true })
  const long = `${'of_the_other_department.'.repeat(6)}archive`
  await pair.sourceClient.db('app').collection(long).insertOne({})
  const a = await begin(500)
  const { page, complaints } = await open(a)
  await shows(page, '#collections-note', 'None yet.')
  expectAccepted(await instances.post('start', body))
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const rowOf = (name: string) => page.locator('#collection-rows tr', { hasText: name })
  await vi.waitFor(async () => {
    const cells = await rowOf('app.things').locator('th, td').allTextContents()
    expect(cells.slice(2)).toEqual([
      '500',
      '2 of 2 built, 1 deferred until commit',
      '500 compared, changes followed',
      '–',
    ])
    expect(cells[1]).toMatch(/^[\d.]+ kB, all$/)
  }, patience)
  await shows(page, '#collections-note', /^2 in all/)
  await shows(page, '#indexes', /^2 of 2 \(1 of 1 collection\)$/)
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const viewport of [wide, narrow]) {
      const { page: viewed } = await open(a, { colorScheme, viewport })
      await shows(viewed, '#collection-rows', long)
      expect(await violations(viewed)).toEqual([])
      expect(await viewed.evaluate('document.documentElement.scrollWidth')).toBe(viewport.width)
      await keepScreenshot(viewed, `collections-${colorScheme}-${viewport.width}`)
      await viewed.close()
    }
  }
  await deleteOnDestination(7)
  expectAccepted(await instances.post('commit'))
  await shows(page, '#state', 'FAILED')
  await page.getByRole('link', { name: 'What to do about VerificationFailed' }).waitFor(patience)
  await vi.waitFor(async () => expect(await rowOf('app.things').locator('td').last().textContent()).toBe('1'), patience)
  expect(await page.locator('#collection-rows tr').first().locator('th').textContent()).toBe('app.things')
  expect(complaints).toEqual([])
})

it('links a failure and a warning to their entries in the documentation, which the instance serves', async () => {
  const a = await begin(500)
  expectAccepted(await instances.post('start', { source: 'cluster0', destination: 'cluster1' }))
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  // The page shows a warning, because the start does not contain enableUserWriteBlocking.
  const { page, complaints } = await open(a)
  const popup = page.waitForEvent('popup')
  await page.locator('#notices li', { hasText: 'start left out' }).getByRole('link', { name: 'new tab' }).click()
  await shows(await popup, ':target', 'start left out enableUserWriteBlocking')
  await shows(page, '#connection', 'live')
  for (const colorScheme of ['light', 'dark'] as const) {
    for (const viewport of [wide, narrow]) {
      const { page: read } = await open(a, { colorScheme, viewport })
      await read.goto(`${a.url}/docs/troubleshooting.md#verificationfailed`)
      expect(await text(read, ':target')).toBe('VerificationFailed')
      expect(await violations(read)).toEqual([])
      expect(await read.evaluate('document.documentElement.scrollWidth')).toBe(viewport.width)
      await keepScreenshot(read, `docs-${colorScheme}-${viewport.width}`, false)
    }
  }
  // This page of the documentation has wide tables.
  const { page: tables } = await open(a, { viewport: narrow })
  await tables.goto(`${a.url}/docs/control.md`)
  expect(await violations(tables)).toEqual([])
  expect(await tables.evaluate('document.documentElement.scrollWidth')).toBe(narrow.width)
  await keepScreenshot(tables, 'docs-tables-360', false)
  await tables.getByRole('link', { name: 'Dashboard', exact: true }).click()
  await shows(tables, '#state', 'RUNNING')
  expect(complaints).toEqual([])
})

it('lists the differences after a failed verification, and repairs them on the page of the coordinator', async () => {
  await begin(500)
  expectAccepted(await instances.post('start', body))
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const coordinator = await instances.coordinator()
  const { page, complaints } = await open(coordinator)
  await enabled(page, 'commit')
  expect(await page.isVisible('#mismatches-section')).toBe(false)
  await deleteOnDestination(7)
  expectAccepted(await instances.post('commit'))
  await shows(page, '#mismatch-rows', 'app.things')
  const cells = await page.locator('#mismatch-rows tr').first().locator('th, td').allTextContents()
  expect(cells.slice(0, 3)).toEqual(['app.things', 'document missing on the destination', '_id {"$numberInt":"7"}'])
  await shows(page, '#mismatches-note', /^1 difference, /)
  for (const viewport of [wide, narrow]) {
    const { page: viewed } = await open(coordinator, { colorScheme: 'dark', viewport })
    await shows(viewed, '#mismatch-rows', 'app.things')
    expect(await violations(viewed)).toEqual([])
    expect(await viewed.evaluate('document.documentElement.scrollWidth')).toBe(viewport.width)
    await keepScreenshot(viewed, `mismatches-dark-${viewport.width}`)
  }
  const other = [...instances.members.values()].find((one) => one !== coordinator) as Tandem
  const { page: elsewhere } = await open(other)
  await shows(elsewhere, '#why-not-repair', /^only the coordinator repairs: open the dashboard of instance [ab]$/)

  await enabled(page, 'repair')
  await page.click('#repair')
  expect(await text(page, '#dialog-effect')).toMatch(
    /^Reads from cluster0: .* again what the verification found different, and makes cluster1/,
  )
  await page.click('#dialog-confirm')
  await shows(page, '#outcome', 'repair: 1 document is equal to the source now. Send resume, which commits again.')
  await enabled(page, 'resume')
  await page.click('#resume')
  await page.click('#dialog-confirm')
  await shows(page, '#state', 'COMMITTED')
  await vi.waitFor(async () => expect(await page.isVisible('#mismatches-section')).toBe(false), patience)
  // An instance that has not failed refuses resume.
  expect(complaints.filter((complaint) => !/status of 409/.test(complaint))).toEqual([])
})

it('shows that it is reconnecting, and continues when the instance is available again', async () => {
  const a = await begin(500)
  expectAccepted(await instances.post('start', body))
  await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
  const { page, complaints } = await open(a)
  await shows(page, '#connection', 'live')
  await enabled(page, 'pause')
  await page.click('#pause')
  await page.waitForSelector('#dialog[open]')
  await instances.kill9('a')
  await shows(page, '#connection', 'reconnecting')
  await page.waitForSelector('#dialog', { state: 'hidden' })
  expect(await text(page, '#outcome')).toBe('pause was not sent: no connection to tandem.')
  expect(await text(page, '#announcer')).toContain('Reconnecting')
  expect(await text(page, '#why-not-pause')).toBe('no connection to tandem')
  const again = await instances.start('a', { port: Number(new URL(a.url).port) })
  await shows(page, '#connection', 'live')
  await enabled(page, 'commit')
  await page.close()
  // The instance ends immediately, even if a dashboard is open.
  const { page: watching } = await open(again)
  await shows(watching, '#connection', 'live')
  expect(await again.stop()).toBe(0)
  await shows(watching, '#connection', 'reconnecting')
  expect(complaints).toEqual([])
})

/** Opens the audit trail, and checks that it lists commands that this page has sent. */
async function showsAudit(page: Page): Promise<void> {
  await page.getByText('Who sent which command').click()
  await shows(page, '#audit-rows', /UTCall\/commita127\.0\.0\.1noneaccepted/)
  await shows(page, '#audit-rows', /UTCpause[ab]passed on by a–accepted/)
  expect(await violations(page)).toEqual([])
  await page.setViewportSize(narrow)
  expect(await violations(page)).toEqual([])
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(narrow.width)
  await keepScreenshot(page, 'audit-360')
  await page.setViewportSize(wide)
}

/** Deletes a document on the destination, as a foreign write does. The verdict of the next commit names it. */
async function deleteOnDestination(_id: number): Promise<void> {
  const deletes = [{ q: { _id }, limit: 1 }]
  await pair.destinationClient.db('app').command({ delete: 'things', deletes, mayBypassWriteBlocking: true })
}

/** Returns the number of events that the page shows, without thousands separators and the rate. */
async function eventsShown(page: Page): Promise<string> {
  return (/^[\d,]+/.exec(await text(page, '#events'))?.[0] ?? '0').replaceAll(',', '')
}
