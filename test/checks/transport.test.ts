import { hostname, networkInterfaces } from 'node:os'
import { afterEach, describe, expect, test } from 'vitest'
import { clusterRisks, isThisMachine, redisRisks } from '../../src/checks/transport.ts'
import { Cluster } from '../../src/mongo/cluster.ts'

/** Tests warnings about connections that others on the network could read. The tests open no connection. */

const opened: Cluster[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((cluster) => cluster.close()))
})
function risksOf(uri: string) {
  const cluster = new Cluster('cluster0', uri, 'test')
  opened.push(cluster)
  return clusterRisks(cluster)
}

describe('a connection string', () => {
  test.each([
    'mongodb://localhost:27017',
    'mongodb://127.0.0.1,127.1.2.3:27018/?replicaSet=a',
    'mongodb://[::1]:27017',
    'mongodb://%2Ftmp%2Fmongodb-27017.sock',
    `mongodb://${hostname()}`,
    'mongodb://db.example/?tls=true',
    'mongodb://db.example/?ssl=true&replicaSet=a',
    'mongodb://db.example/?tls=true&tlsInsecure=false',
  ])('%s causes no warning', (uri) => {
    expect(risksOf(uri)).toEqual([])
  })

  test.each([
    ['mongodb://user:hunter2@db.example', 'db.example:27017'],
    ['mongodb://localhost,db2.example:1,db1.example/?replicaSet=a', 'db1.example:27017, db2.example:1'],
    ['mongodb://10.0.0.1/?tls=false', '10.0.0.1:27017'],
    ['mongodb://[2001:db8::1]', '[2001:db8::1]:27017'],
    ['mongodb://127.evil.example', '127.evil.example:27017'],
    ['mongodb://d,c,b,a,localhost', 'a:27017, b:27017, c:27017 and 1 more'],
  ])('%s causes a warning that lists the hosts of other machines', (uri, hosts) => {
    const risks = risksOf(uri)
    expect(risks).toMatchObject([{ severity: 'warning', name: 'UnencryptedConnection' }])
    expect(risks[0]?.message).toContain(`cluster0: the connections to ${hosts} have no TLS`)
    expect(JSON.stringify(risks)).not.toContain('hunter2')
  })

  test.each([
    ['tlsInsecure=true', 'tlsInsecure'],
    [
      'tlsAllowInvalidCertificates=true&tlsAllowInvalidHostnames=true',
      'tlsAllowInvalidCertificates and tlsAllowInvalidHostnames',
    ],
    ['TLSallowinvalidHOSTNAMES=true', 'tlsAllowInvalidHostnames'],
  ])('with %s causes a warning that names the option', (options, named) => {
    const [risk, ...more] = risksOf(`mongodb://db.example/?tls=true&${options}`)
    expect(more).toEqual([])
    expect(risk).toMatchObject({ name: 'UnverifiedConnection', message: expect.stringContaining(`has ${named}, so`) })
  })

  test('causes a warning for a server that the driver discovers, until the driver removes that server', () => {
    const cluster = new Cluster('cluster1', 'mongodb://localhost', 'test')
    opened.push(cluster)
    const event = { address: 'db.example:27017' } as never
    cluster.client.emit('serverOpening', event)
    expect(clusterRisks(cluster)).toMatchObject([{ message: expect.stringMatching(/^cluster1: .* db\.example:27017/) }])
    cluster.client.emit('serverClosed', event)
    expect(clusterRisks(cluster)).toEqual([])
  })

  test('with a DNS seed list has TLS unless an option turns it off', () => {
    expect(risksOf('mongodb+srv://cluster.example')).toEqual([])
    const cluster = new Cluster('cluster0', 'mongodb+srv://cluster.example/?tls=false', 'test')
    opened.push(cluster)
    cluster.client.emit('serverOpening', { address: 'a.cluster.example:27017' } as never)
    expect(clusterRisks(cluster)).toMatchObject([
      { message: expect.stringContaining('to a.cluster.example:27017 have') },
    ])
  })
})

test.each([
  [null, false],
  ['redis://localhost', false],
  ['redis://127.0.0.1:1', false],
  ['redis://[::1]:1', false],
  ['rediss://cache.example', false],
  ['redis://:hunter2@cache.example', true],
  ['redis://[2001:db8::1]:1', true],
])('Redis at %s causes a warning: %s', (url, isRisky) => {
  const risks = redisRisks(url)
  expect(risks).toHaveLength(isRisky ? 1 : 0)
  if (isRisky)
    expect(risks).toMatchObject([{ name: 'UnencryptedConnection', message: expect.stringMatching(/^redis: /) }])
  expect(JSON.stringify(risks)).not.toContain('hunter2')
})

test('the addresses of all network interfaces belong to this machine', () => {
  for (const { address, family } of Object.values(networkInterfaces()).flatMap((one) => one ?? [])) {
    expect(isThisMachine(family === 'IPv6' ? `[${address}]:27017` : `${address}:27017`)).toBe(true)
  }
})
