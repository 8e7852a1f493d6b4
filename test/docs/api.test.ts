import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { apiPage, apiPath } from '../../scripts/docs/api-page.ts'
import { fieldsOf } from '../../scripts/docs/schema-fields.ts'

test('docs/api.md matches the code of the API; if not, run npm run docs:api', async () => {
  expect(readFileSync(new URL(`../../${apiPath}`, import.meta.url), 'utf8')).toBe(await apiPage())
})

test('every link within the page leads to one of its headings', async () => {
  const page = await apiPage()
  const anchors = [...page.matchAll(/^##+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
  const links = [...page.matchAll(/\]\(#([^)]+)\)/g)].map(([, target]) => target)
  expect(links.length).toBeGreaterThan(10)
  expect(links.filter((target) => !anchors.includes(target ?? ''))).toEqual([])
})

test('the page lists nested fields, also those in arrays and in nullable objects', () => {
  const fields = fieldsOf({
    type: 'object',
    required: ['list', 'mode'],
    properties: {
      list: {
        type: 'array',
        minItems: 1,
        items: { type: 'object', properties: { name: { type: 'string', minLength: 1 } } },
      },
      maybe: {
        anyOf: [
          { type: 'object', required: ['n'], properties: { n: { type: 'integer', minimum: 1, maximum: 1_600 } } },
          { type: 'null' },
        ],
      },
      mode: { anyOf: [{ type: 'string', enum: ['a', 'b'] }, { type: 'boolean' }], default: 'a', description: 'How.' },
    },
  })
  expect(
    fields.map(({ path, type, required, constraints, default: given }) => [path, type, required, constraints, given]),
  ).toEqual([
    ['list', 'array of objects', true, 'at least one element', ''],
    ['list[].name', 'string', false, 'not empty', ''],
    ['maybe', 'object or null', false, '', ''],
    ['maybe.n', 'integer', true, 'at least 1; at most 1,600', ''],
    ['mode', 'string or boolean', false, '`a`, `b`', '"a"'],
  ])
})
