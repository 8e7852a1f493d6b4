import { readFileSync } from 'node:fs'
import { type Context, Hono } from 'hono'
import { wrongMethod } from './answers.ts'

/** Serves the files of `src/dashboard` unchanged. Their data comes from the API, mostly from `/api/v1/events`. */

const directory = new URL('../dashboard/', import.meta.url)

const contentTypes = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
}

/** File names by URL path. They are listed, so that the path of a request is never used to open a file. */
const files: Record<string, `${string}.${keyof typeof contentTypes}`> = {
  '/': 'page.html',
  '/dashboard/base.css': 'base.css',
  '/dashboard/overview.css': 'overview.css',
  '/dashboard/controls.css': 'controls.css',
  '/dashboard/tables.css': 'tables.css',
  '/dashboard/responsive.css': 'responsive.css',
  '/dashboard/docs.css': 'docs.css',
  '/dashboard/kept-points.js': 'kept-points.js',
  '/dashboard/limits.js': 'limits.js',
  '/dashboard/main.js': 'main.js',
  '/dashboard/access.js': 'access.js',
  '/dashboard/actions.js': 'actions.js',
  '/dashboard/audit-cells.js': 'audit-cells.js',
  '/dashboard/audit-trail.js': 'audit-trail.js',
  '/dashboard/chart.js': 'chart.js',
  '/dashboard/collection-cells.js': 'collection-cells.js',
  '/dashboard/collections.js': 'collections.js',
  '/dashboard/commands.js': 'commands.js',
  '/dashboard/confirmation.js': 'confirmation.js',
  '/dashboard/docs-link.js': 'docs-link.js',
  '/dashboard/error-text.js': 'error-text.js',
  '/dashboard/format.js': 'format.js',
  '/dashboard/history.js': 'history.js',
  '/dashboard/instances.js': 'instances.js',
  '/dashboard/mismatch-cells.js': 'mismatch-cells.js',
  '/dashboard/mismatches.js': 'mismatches.js',
  '/dashboard/overview.js': 'overview.js',
  '/dashboard/page.js': 'page.js',
  '/dashboard/phases.js': 'phases.js',
  '/dashboard/poll.js': 'poll.js',
  '/dashboard/question.js': 'question.js',
  '/dashboard/server-sent-events.js': 'server-sent-events.js',
  '/dashboard/table.js': 'table.js',
}

/** Paths that need no token: their files contain nothing about a sync. The page reads that from the API. */
export const dashboardPaths: readonly string[] = Object.keys(files)

/** Allows no content from other hosts, no inline scripts or styles, and no embedding in a frame. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ')

/** Answers with a file of the dashboard, or with a page of the documentation. */
export function pageBody(context: Context, contentType: string, text: string): Response {
  context.header('Content-Type', contentType)
  context.header('Content-Security-Policy', policy)
  context.header('Referrer-Policy', 'no-referrer')
  return context.body(text)
}

export function dashboardRoutes(): Hono {
  const routes = new Hono()
  for (const [path, file] of Object.entries(files)) {
    const text = readFileSync(new URL(file, directory), 'utf8')
    const extension = file.slice(file.lastIndexOf('.') + 1) as keyof typeof contentTypes
    routes.get(path, (context) => pageBody(context, contentTypes[extension], text))
    routes.all(path, (context) => wrongMethod(context, 'GET, HEAD'))
  }
  return routes
}
