import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { commit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { guardPath, removeGuardedPath } from '../support/guarded-process.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** Clusters that require TLS, with users who have a password (SCRAM) or a certificate (X.509) that the test makes. */

const openssl = (...args: string[]) => promisify(execFile)('openssl', args)
const available = await openssl('version').then(
  () => true,
  () => false,
)

describe.skipIf(!available)('clusters with TLS and access control', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-tls-'))
  const file = (name: string): string => path.join(folder, name)
  let source: ReplicaSet
  let destination: ReplicaSet

  async function makeCertificate(name: string, subject: string, extensions: string): Promise<void> {
    const request = ['-newkey', 'rsa:2048', '-nodes', '-keyout', file(`${name}.key`), '-out', file(`${name}.csr`)]
    await openssl('req', ...request, '-subj', subject)
    writeFileSync(file(`${name}.ext`), extensions)
    const signed = [
      '-in',
      file(`${name}.csr`),
      '-extfile',
      file(`${name}.ext`),
      '-out',
      file(`${name}.crt`),
      '-days',
      '2',
    ]
    await openssl('x509', '-req', ...signed, '-CA', file('ca.crt'), '-CAkey', file('ca.key'), '-CAcreateserial')
    writeFileSync(
      file(`${name}.pem`),
      readFileSync(file(`${name}.crt`), 'utf8') + readFileSync(file(`${name}.key`), 'utf8'),
      { mode: 0o600 },
    )
  }

  beforeAll(async () => {
    guardPath(folder)
    const authority = ['-newkey', 'rsa:2048', '-nodes', '-keyout', file('ca.key'), '-out', file('ca.crt'), '-days', '2']
    await openssl('req', '-x509', ...authority, '-subj', '/O=tandem/CN=authority')
    await makeCertificate('server', '/O=tandem/OU=servers/CN=127.0.0.1', 'subjectAltName=IP:127.0.0.1')
    await makeCertificate('client', '/O=tandem/OU=clients/CN=tandem', 'extendedKeyUsage=clientAuth')
    const extraArgs = [
      // Raised to requireTLS below, because the set is initiated over connections without TLS.
      ...['--tlsMode', 'preferTLS', '--tlsCertificateKeyFile', file('server.pem'), '--tlsCAFile', file('ca.crt')],
      '--tlsAllowConnectionsWithoutCertificates',
      ...['--setParameter', 'authenticationMechanisms=SCRAM-SHA-256,SCRAM-SHA-1,MONGODB-X509'],
    ]
    ;[source, destination] = await Promise.all([
      startReplicaSet({ auth: true, extraArgs }),
      startReplicaSet({ auth: true, extraArgs }),
    ])
    for (const { uri } of [source, destination]) {
      await using client = await MongoClient.connect(uri)
      const external = client.db('$external')
      await external.command({ createUser: 'CN=tandem,OU=clients,O=tandem', roles: [{ role: 'root', db: 'admin' }] })
      await client.db('admin').command({ setParameter: 1, tlsMode: 'requireTLS' })
    }
  })

  afterAll(async () => {
    await Promise.all([source?.stop(), destination?.stop()])
    removeGuardedPath(folder)
  })

  const encrypted = (set: ReplicaSet): string => `${set.uri}&tls=true&tlsCAFile=${encodeURIComponent(file('ca.crt'))}`
  const byCertificate = ({ hosts, name }: ReplicaSet): string =>
    `mongodb://${hosts.join(',')}/?replicaSet=${name}&tls=true&tlsCAFile=${encodeURIComponent(file('ca.crt'))}` +
    `&tlsCertificateKeyFile=${encodeURIComponent(file('client.pem'))}&authMechanism=MONGODB-X509&authSource=%24external`

  beforeEach(async () => {
    for (const set of [source, destination]) {
      await using client = await MongoClient.connect(encrypted(set))
      await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
      for (const name of ['app', metadataDatabase]) await client.db(name).dropDatabase()
    }
  })

  it.each([
    ['by password', encrypted],
    ['by certificate', byCertificate],
  ] as const)('are synced by a user who logs in %s', async (_how, address) => {
    await using client = await MongoClient.connect(encrypted(source))
    const things = client.db('app').collection('things')
    await things.insertMany(Array.from({ length: 500 }, (_, a) => ({ a })))
    await using tandem = await startTandem({ cluster0: address(source), cluster1: address(destination) })
    await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).not.toBeNull()
    await startSync(tandem)
    await things.updateMany({ a: { $lt: 50 } }, { $set: { changed: true } })
    await commit(tandem)
    expect((await compareBoth(encrypted(source), encrypted(destination))).differences).toEqual([])
    expect(tandem.output()).not.toContain(folder)
  })

  it('are refused with ClusterUnreachable without TLS, and with a certificate of another authority', async () => {
    const other = mkdtempSync(path.join(folder, 'other-'))
    const authority = ['-newkey', 'rsa:2048', '-nodes', '-keyout', `${other}/ca.key`, '-out', `${other}/ca.crt`]
    await openssl('req', '-x509', ...authority, '-days', '2', '-subj', '/O=other/CN=other')
    const refused = [source.uri, encrypted(source).replace(/tlsCAFile=.*/, `tlsCAFile=${other}/ca.crt`)]
    // Both wait for the time limit of the driver's server selection, so they wait at the same time.
    await Promise.all(
      refused.map(async (cluster0) => {
        await using tandem = await startTandem({ cluster0, cluster1: encrypted(destination) })
        const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1' })
        expect(answer).toMatchObject({ status: 503, body: { error: 'ClusterUnreachable' } })
      }),
    )
  })
})
