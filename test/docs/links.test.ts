import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { anchorsOf, root, textOf } from './pages.ts'

/** Links between the pages lead to existing pages and headings. */

const pages = [...readdirSync(root), ...readdirSync(path.join(root, 'docs')).map((name) => `docs/${name}`)].filter(
  (name) => name.endsWith('.md'),
)

test.each(pages)('every link of %s leads to an existing page and heading', (page) => {
  const text = textOf(page)
  const broken = [...text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g)].flatMap(([, file = '', anchor]) => {
    const target = file === '' ? page : path.join(path.dirname(page), file)
    if (!existsSync(path.join(root, target))) return [target]
    return anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).includes(anchor)
      ? [`${target}#${anchor}`]
      : []
  })
  expect(broken).toEqual([])
})

test('the README has a link to every page', () => {
  const readme = textOf('README.md')
  expect(pages.filter((page) => page !== 'README.md' && !readme.includes(`](${page})`))).toEqual([])
})
