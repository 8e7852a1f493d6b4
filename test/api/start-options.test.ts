import { expect, test } from 'vitest'
import { parseStartBody } from '../../src/api/start-body.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { refused } from './parsed.ts'

/** start and check accept filters and shard keys as options. The client converts the options to the body of the request. */

function bodyOf(...args: string[]): Record<string, unknown> {
  const parsed = parseCommandLine(['start', ...args], {})
  if (parsed.kind !== 'client' || !('inline' in parsed.request.body)) throw new Error(JSON.stringify(parsed))
  return parsed.request.body.inline as Record<string, unknown>
}

test('--include and --exclude become the filters of the body, with one element for each database', () => {
  const included = ['shop.orders', 'zoo', 'shop.a.b', 'shop.orders', 'zoo.cats'].flatMap((name) => ['--include', name])
  expect(bodyOf(...included, '--exclude', 'zoo.tmp')).toEqual({
    includeNamespaces: [{ database: 'shop', collections: ['orders', 'a.b'] }, { database: 'zoo' }],
    excludeNamespaces: [{ database: 'zoo', collections: ['tmp'] }],
  })
  expect(parseCommandLine(['check', '--include', 'shop'], {})).toMatchObject({
    request: { command: 'check', body: { inline: { includeNamespaces: [{ database: 'shop' }] } } },
  })
})

test('--shardKey becomes the sharding entries of the body', () => {
  expect(bodyOf('--shardKey', 'shop.a.b=region:1,user.id:hashed', '--shardKey', 'shop.c=x:y:-1')).toEqual({
    sharding: {
      shardingEntries: [
        { database: 'shop', collection: 'a.b', shardCollection: { key: [{ region: 1 }, { 'user.id': 'hashed' }] } },
        { database: 'shop', collection: 'c', shardCollection: { key: [{ 'x:y': -1 }] } },
      ],
    },
  })
  expect(bodyOf('--shardKey', 'shop.c=x:1', '--createSupportingIndexes')).toMatchObject({
    sharding: { createSupportingIndexes: true, shardingEntries: [{}] },
  })
  expect(bodyOf('--shardKey', 'none')).toEqual({ sharding: { shardingEntries: [] } })
})

test('the API accepts a body that was made from options', () => {
  const options = ['--include', 'shop.orders', '--exclude', 'shop.tmp', '--shardKey', 'shop.orders=a:1,b:hashed']
  const body = bodyOf('--source', 'cluster0', '--destination', 'cluster1', ...options)
  expect(parseStartBody(body)).toMatchObject({
    includeNamespaces: [{ database: 'shop', collections: ['orders'] }],
    excludeNamespaces: [{ database: 'shop', collections: ['tmp'] }],
    sharding: { createSupportingIndexes: false, shardingEntries: [{ collection: 'orders' }] },
  })
})

test.each([
  [['--include', ''], /--include .* must be a database, or database\.collection/],
  [['--include', 'shop.'], /--include .* must be a database/],
  [['--exclude', '.orders'], /--exclude .* must be a database/],
  [['--include', 'admin'], /--include .* never synced/],
  [['--exclude', 'shop.system.views'], /--exclude .* never synced/],
  [['--shardKey', 'shop.orders'], /--shardKey .* must have the form db\.collection=field:1/],
  [['--shardKey', 'shop=a:1'], /--shardKey .* "shop" is not db\.collection/],
  [['--shardKey', 'shop.orders='], /--shardKey .* "" is not field:1/],
  [['--shardKey', 'shop.orders=a'], /--shardKey .* "a" is not field:1 or field:hashed/],
  [['--shardKey', 'shop.orders=a:up'], /--shardKey .* direction of "a" must be 1 or hashed/],
  [['--shardKey', 'shop.orders=a:1,'], /--shardKey .* "" is not field:1/],
  [['--shardKey', 'shop.a=b=c:1'], /--shardKey .* equals sign .* --body/],
  [['--shardKey', 'shop.a=b:1', '--shardKey', 'shop.a=c:1'], /--shardKey .* already has a key/],
  [['--shardKey', 'shop.a=b:1', '--shardKey', 'none'], /--shardKey .* give it alone/],
  [['--shardKey', 'none', '--shardKey', 'shop.a=b:1'], /--shardKey .* give it alone/],
  [['--createSupportingIndexes'], /--createSupportingIndexes applies to --shardKey/],
  [['--body', '{}', '--include', 'shop'], /'--body <json>' cannot be used with option '--include/],
  [['--body', '{}', '--shardKey', 'none'], /'--body <json>' cannot be used with option '--shardKey/],
  [
    ['--body', '{}', '--createSupportingIndexes'],
    /'--body <json>' cannot be used with option '--createSupportingIndexes/,
  ],
])('start %j is refused', (args, message) => {
  expect(refused(['start', ...args])).toMatch(message)
})
