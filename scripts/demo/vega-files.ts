import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Document } from 'mongodb'

const folder = new URL('../data/', import.meta.resolve('vega-datasets'))

export function readJson(name: string): unknown {
  return JSON.parse(readFileSync(fileURLToPath(new URL(name, folder)), 'utf8'))
}

/**
 * Returns the rows as documents. Numeric fields become numbers, and empty fields become null. A field may be quoted, but no
 * field of these files spans several lines.
 */
export function readCsv(name: string): Document[] {
  const [header = '', ...lines] = readFileSync(fileURLToPath(new URL(name, folder)), 'utf8')
    .trim()
    .split(/\r?\n/)
  const names = header.split(',').map((name) => name.replaceAll(/[ $]+$/g, ''))
  return lines.map((line) => {
    const values = [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
      ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? '',
    )
    return Object.fromEntries(names.map((name, at) => [name, typed(values[at] ?? '')]))
  })
}

function typed(text: string): string | number | null {
  if (text === '') return null
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text
}
