import { MongoClient } from 'mongodb'
import { expect, test } from 'vitest'
import { shardUri } from '../../src/domain/shard-uri.ts'

const host = 'shard0/a:1,b:2'

test.each([
  ['mongodb://router', 'mongodb://a:1,b:2/?replicaSet=shard0'],
  ['mongodb://r1,r2:5/app?tls=true', 'mongodb://a:1,b:2/app?tls=true&replicaSet=shard0'],
  ['mongodb://u:p%40@r/?authSource=x&loadBalanced=true', 'mongodb://u:p%40@a:1,b:2/?authSource=x&replicaSet=shard0'],
  ['mongodb://r?directConnection=false', 'mongodb://a:1,b:2/?replicaSet=shard0'],
  ['mongodb+srv://u:p@c.example/', 'mongodb://u:p@a:1,b:2/?tls=true&replicaSet=shard0'],
  ['mongodb://r/?loadBalanced=true&LOADBALANCED=true&REPLICASET=x', 'mongodb://a:1,b:2/?replicaSet=shard0'],
  [
    'mongodb://r/?authMechanismProperties=A:b,C:d',
    'mongodb://a:1,b:2/?authMechanismProperties=A%3Ab%2CC%3Ad&replicaSet=shard0',
  ],
  ['mongodb+srv://c.example/?tls=false', 'mongodb://a:1,b:2/?tls=false&replicaSet=shard0'],
])('from %s, the connection string of a shard is %s', (uri, expected) => {
  expect(shardUri(uri, host)).toBe(expected)
  expect(new MongoClient(expected).options.hosts.map(String)).toEqual(['a:1', 'b:2'])
})
