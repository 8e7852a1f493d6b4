import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { docsPaths } from '../../src/api/docs-pages.ts'
import { apiUnderTest } from './recording-instance.ts'

const directory = new URL('../../src/dashboard/', import.meta.url)
const files = readdirSync(directory)
const pathOf = (file: string): string => (file === 'page.html' ? '/' : `/dashboard/${file}`)

describe('the dashboard', () => {
  test.each(files)(
    '%s is served unchanged, with a content security policy that allows only resources of the instance',
    async (file) => {
      const response = await apiUnderTest().api.request(pathOf(file))
      expect(response.status).toBe(200)
      expect(await response.text()).toBe(readFileSync(new URL(file, directory), 'utf8'))
      expect(response.headers.get('content-type')).toMatch(/^text\/(html|css|javascript); charset=utf-8$/)
      const policy = response.headers.get('content-security-policy')
      expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; /)
      expect(policy).toContain("frame-ancestors 'none'")
      expect(policy).not.toMatch(/unsafe|https?:/)
    },
  )

  test('requests only these files, has no inline scripts or styles, and builds no markup from text', () => {
    const served = new Set([...files.map(pathOf), ...docsPaths])
    for (const file of files) {
      const text = readFileSync(new URL(file, directory), 'utf8')
      const linked = [...text.matchAll(/(?:src|href)="(\/[^"]*)"/g)].map(([, path]) => path as string)
      const imported = [...text.matchAll(/from '\.\/([^']*)'/g)].map(([, name]) => `/dashboard/${name}`)
      for (const path of [...linked, ...imported]) expect(served).toContain(path)
      expect(text, file).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|url\(|@import ['"(]/)
      if (file === 'page.html') expect(text).not.toMatch(/<style|style=|<script>|\son\w+=|https?:\/\/(?!www\.w3\.org)/)
    }
  })

  test('is refused to foreign pages, and accepts only GET', async () => {
    const { get, post } = apiUnderTest()
    expect((await get('/', { host: 'rebound.test' })).status).toBe(403)
    expect((await post('/')).headers.get('allow')).toBe('GET, HEAD')
    expect((await get('/dashboard/../package.json')).status).toBe(404)
  })
})
