import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { docsPaths } from '../../src/api/docs-pages.ts'
import { renderDocsPage } from '../../src/api/render-docs-page.ts'
import { anchorsOf, root } from '../docs/pages.ts'
import { apiUnderTest } from './recording-instance.ts'

/** An instance serves the pages of the documentation. */

const { api } = apiUnderTest({ token: 'a1'.repeat(20) })
const idsOf = (html: string): string[] => [...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id as string)

test('all pages of docs/ are served, and the package contains them', () => {
  const pages = readdirSync(path.join(root, 'docs')).filter((name) => name.endsWith('.md'))
  expect(docsPaths).toEqual(pages.map((name) => `/docs/${name}`))
  expect(docsPaths).toContain('/docs/troubleshooting.md')
  expect(JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')).files).toContain('docs')
})

test.each([...docsPaths])(
  '%s is served without a token, as HTML with the headings of the page and the security policy of the dashboard',
  async (page) => {
    const response = await api.request(page)
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(response.headers.get('content-security-policy')).toBe(
      (await api.request('/')).headers.get('content-security-policy'),
    )
    const html = await response.text()
    expect(idsOf(html)).toEqual(['main', ...anchorsOf(page.slice(1))])
    expect(html).not.toMatch(/<script|<style| style=|<img|<iframe/)
  },
)

test.each([...docsPaths])(
  'every link of %s leads to a page that is served and to one of its headings',
  async (page) => {
    const [, html = ''] = (await (await api.request(page)).text()).split('<main id="main">')
    const links = [...html.matchAll(/ href="(?!https?:)([^"#]*)(?:#([^"]*))?"/g)]
    for (const [, file = '', anchor] of links) {
      const target = file === '' ? page : `/docs/${file}`
      expect(docsPaths).toContain(target)
      if (anchor !== undefined) expect(anchorsOf(target.slice(1))).toContain(anchor)
    }
  },
)

test('raw HTML and links to anything but pages are shown as text', () => {
  const markdown =
    '# A <b>\n\n<script>x()</script>\n\n[a](javascript:x) [b](../src/main.ts) [c](b.md#d) ![e](f.png) `<g>`'
  const html = renderDocsPage('a.md', markdown, ['a.md', 'b.md'])
  expect(html).not.toMatch(/<script|<b>|javascript:|main\.ts|f\.png|<g>/)
  expect(html).toContain('<a href="b.md#d">c</a>')
  expect(html).toContain('<title>A &lt;b&gt; · tandem</title>')
})

test('other paths, methods and hosts are refused', async () => {
  const headers = { authorization: `Bearer ${'a1'.repeat(20)}` }
  const statusOf = async (page: string, init: RequestInit = {}): Promise<number> =>
    (await api.request(page, { ...init, headers: { ...headers, ...init.headers } })).status
  expect(await statusOf('/docs/%2e%2e/package.json')).toBe(404)
  expect(await statusOf('/docs/none.md')).toBe(404)
  expect(await statusOf('/docs/troubleshooting.md', { method: 'POST' })).toBe(405)
  expect(await statusOf('/docs/troubleshooting.md', { headers: { host: 'rebound.test' } })).toBe(403)
})
