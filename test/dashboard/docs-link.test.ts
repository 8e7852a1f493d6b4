import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import {
  linkOfBackOff,
  linkOfError,
  linkOfProblem,
  linkOfWarning,
  warningAnchors,
} from '../../src/dashboard/docs-link.js'
import { docsOf } from '../../src/domain/error-details.ts'
import { failureNames, refusalNames } from '../../src/domain/errors.ts'
import { anchorsOf, root } from '../docs/pages.ts'

/** Links from the dashboard lead to headings of docs/troubleshooting.md. */

const headings = anchorsOf('docs/troubleshooting.md')
const sources = ['src/session', 'src/checks', 'src/dashboard', 'src/domain']
  .flatMap((folder) => readdirSync(path.join(root, folder)).map((file) => path.join(root, folder, file)))
  .filter((file) => !file.endsWith('docs-link.js'))
  .map((file) => readFileSync(file, 'utf8'))
  .join('\n')

test.each([...warningAnchors])(
  'a warning with %j leads to a heading, and the product has such a warning',
  (part, anchor) => {
    expect(headings).toContain(anchor)
    expect(sources).toContain(part)
    expect(linkOfWarning(`a: ${part}, and more`).href).toBe(`/docs/troubleshooting.md#${anchor}`)
  },
)

test('the link of a back-off leads to the section about back-offs', () => {
  const [file = '', anchor = ''] = linkOfBackOff.href.slice(1).split('#')
  expect(anchorsOf(file)).toContain(anchor)
})

test('an unknown warning leads to the section of all warnings', () => {
  expect(linkOfWarning('something new').href).toBe('/docs/troubleshooting.md#warnings')
  expect(headings).toContain('warnings')
})

test.each([...new Set([...refusalNames, ...failureNames])])('the error %s leads to its entry', (error) => {
  const href = linkOfError({ error, docs: docsOf(error) })?.href
  expect(href).toBe(`/docs/troubleshooting.md#${error.toLowerCase()}`)
  expect(headings).toContain(error.toLowerCase())
  expect(linkOfProblem(error)?.href).toBe(href)
})

test.each(['//evil.test/docs/x.md#y', 'javascript:alert(1)', 'docs/../x.md#y', ''])('%j is no link', (docs) => {
  expect(linkOfError({ error: 'InternalError', docs })).toBeNull()
})
