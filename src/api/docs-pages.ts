import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { Hono } from 'hono'
import { wrongMethod } from './answers.ts'
import { pageBody } from './dashboard.ts'

/**
 * Serves the pages of `docs/` as HTML, so that the links of the dashboard work without the internet. The URL path of a
 * page is the path of its file in the package, so links between pages and the field `docs` of errors work unchanged.
 */

/** `docs/` is beside `src/` in a clone, and beside `dist/` in the package. */
const directory = ['../../docs/', '../../../docs/']
  .map((path) => new URL(path, import.meta.url))
  .find((url) => existsSync(new URL('troubleshooting.md', url)))

/** The file names, listed in advance, so that the path of a request is never used to open a file. */
const names = directory ? readdirSync(directory).filter((name) => /^[\w-]+\.md$/.test(name)) : []

/** Served without a token, like the dashboard: the pages contain nothing about a sync. */
export const docsPaths: readonly string[] = names.map((name) => `/docs/${name}`)

export function docsRoutes(): Hono {
  const routes = new Hono()
  const rendered = new Map<string, string>()
  for (const name of names) {
    const path = `/docs/${name}`
    routes.get(path, async (context) => {
      // Imported only when a page is requested, because most instances never serve one.
      const { renderDocsPage } = await import('./render-docs-page.ts')
      const text = rendered.get(name) ?? renderDocsPage(name, readFileSync(new URL(name, directory), 'utf8'), names)
      rendered.set(name, text)
      return pageBody(context, 'text/html; charset=utf-8', text)
    })
    routes.all(path, (context) => wrongMethod(context, 'GET, HEAD'))
  }
  return routes
}
