import { afterEach, expect, test, vi } from 'vitest'
import { progressPrinter } from '../../src/comparison/run-verify.ts'

afterEach(() => vi.restoreAllMocks())

test.each([
  ['a terminal gets a line every two seconds', true, 10],
  ['a file gets a line every five seconds', false, 4],
])('%s', (_, interactive, expected) => {
  let now = 1_000
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  const lines: string[] = []
  const report = progressPrinter({ out: () => {}, err: (text) => lines.push(text), interactive })
  for (let half = 0; half < 40; half++) {
    now += 500
    report({ namespace: 'shop.a\nb', documents: 1_234_567, bytes: 98_765_432, differences: 2 })
  }
  expect(lines).toHaveLength(expected)
  expect(lines[0]).toBe('verify: at shop.a\\u000ab; 1,234,567 documents, 98.8 MB read, 2 differences\n')
})
