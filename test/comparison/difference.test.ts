import { describe, expect, test } from 'vitest'
import { type Difference, Differences, differenceLine } from '../../src/comparison/difference.ts'
import { parseNamespace, selects } from '../../src/comparison/selection.ts'

describe('a difference as a line', () => {
  test.each<[Difference, string]>([
    [{ namespace: 'd.c', what: 'collection', how: 'missing' }, 'd.c: collection missing on cluster1'],
    [{ namespace: 'd.c', what: 'view', how: 'extra' }, 'd.c: view only on cluster1'],
    [{ namespace: 'd.c', what: 'type', how: 'different' }, 'd.c: a collection on one cluster and a view on the other'],
    [{ namespace: 'd.c', what: 'option', how: 'different', option: 'size' }, 'd.c: option size differs'],
    [{ namespace: 'd.c', what: 'index', how: 'missing', index: 'a_1' }, 'd.c: index a_1 missing on cluster1'],
    [
      { namespace: 'd.c', what: 'index', how: 'different', index: 'a_1', field: 'key' },
      'd.c: index a_1 differs in key',
    ],
    [{ namespace: 'd.c', what: 'document', how: 'extra', id: '7' }, 'd.c: document 7 only on cluster1'],
    [{ namespace: 'd.c', what: 'document', how: 'different', id: '7', field: 'a.0' }, 'd.c: document 7 differs at a.0'],
    [{ namespace: 'd.c', what: 'document', how: 'different', id: '7', field: '' }, 'd.c: document 7 differs'],
    [
      { namespace: 'd.c', what: 'order', how: 'different', id: '7' },
      'd.c: natural order differs, starting at document 7',
    ],
    [{ namespace: 'd.a\nb\u001b[2J', what: 'view', how: 'extra' }, 'd.a\\u000ab\\u001b[2J: view only on cluster1'],
  ])('%j', (difference, line) => {
    expect(differenceLine(difference)).toBe(line)
  })

  test('differences above the maximum are counted but not described', () => {
    const differences = new Differences(2)
    let described = 0
    for (let count = 0; count < 5; count++) {
      differences.add(() => {
        described += 1
        return { namespace: `d.${count}`, what: 'view', how: 'extra' }
      })
    }
    expect([differences.total, differences.list.length, described]).toEqual([5, 2, 2])
  })
})

describe('the selection of namespaces', () => {
  test.each([
    ['d', { database: 'd', collection: null }],
    ['d.c', { database: 'd', collection: 'c' }],
    ['d.c.e', { database: 'd', collection: 'c.e' }],
    ['', null],
    ['.c', null],
    ['d.', null],
    ['admin', null],
    ['local.oplog.rs', null],
    ['tandem_internal', null],
    ['d.system.views', null],
  ])('%j is parsed as a database or collection, or rejected', (text, namespace) => {
    expect(parseNamespace(text)).toEqual(namespace)
  })

  test('contains the selected databases and collections, and never internal namespaces', () => {
    const wanted = [
      { database: 'd', collection: null },
      { database: 'e', collection: 'c' },
    ]
    expect([
      selects(wanted, 'd'),
      selects(wanted, 'd', 'any'),
      selects(wanted, 'e'),
      selects(wanted, 'e', 'c'),
    ]).toEqual([true, true, true, true])
    expect([
      selects(wanted, 'e', 'x'),
      selects(wanted, 'f'),
      selects([], 'config'),
      selects([], 'd', 'system.js'),
    ]).toEqual([false, false, false, false])
  })
})
