import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

/** Links between the pages lead to existing pages and headings. */

const root = fileURLToPath(new URL('../../', import.meta.url))
const pages = [...readdirSync(root), ...readdirSync(path.join(root, 'docs')).map((name) => `docs/${name}`)].filter(
  (name) => name.endsWith('.md'),
)

/** The anchors that GitHub derives from the headings. */
function anchorsOf(page: string): string[] {
  const text = readFileSync(path.join(root, page), 'utf8').replaceAll(/^```[\s\S]*?^```/gm, '')
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
}

test.each(pages)('every link of %s leads to an existing page and heading', (page) => {
  const text = readFileSync(path.join(root, page), 'utf8')
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
  const readme = readFileSync(path.join(root, 'README.md'), 'utf8')
  expect(pages.filter((page) => page !== 'README.md' && !readme.includes(`](${page})`))).toEqual([])
})
