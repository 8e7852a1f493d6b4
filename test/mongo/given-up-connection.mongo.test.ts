import { expect, it } from 'vitest'
import { startHoldingProxy } from '../support/holding-proxy.ts'
import { tlsFiles } from '../support/tls/files.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/**
 * When tandem gives up on a write, the kernel of this host must discard the bytes in its send buffer. It would still
 * send them if the socket were closed normally.
 */

const one = oneSet({
  extraArgs: [
    ...['--tlsMode', 'preferTLS', '--tlsCertificateKeyFile', tlsFiles.server, '--tlsCAFile', tlsFiles.authority],
    '--tlsAllowConnectionsWithoutCertificates',
  ],
})
/** These are more bytes than the peer's kernel buffers for a connection that it does not read, and fewer than this host's kernel buffers. */
const documents = Array.from({ length: 8 }, (_, _id) => ({ _id, filling: 'x'.repeat(100_000) }))

it.each([
  ['plain', ''],
  ['TLS', `&tls=true&tlsCAFile=${encodeURIComponent(tlsFiles.authority)}`],
])('after the client has given up on a write, the rest of the write is not sent: %s', async (name, options) => {
  const [host, port] = (one.set.hosts[0] as string).split(':') as [string, string]
  await using proxy = await startHoldingProxy(host, Number(port))
  const cluster = testCluster(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true${options}`)
  await cluster.write('app', { insert: `${name} before`, documents: [{ _id: 0 }] })
  proxy.stall()
  const late = cluster.write('app', { insert: name, documents }, { timeoutMS: 500, unfenced: true })
  await expect(late).rejects.toThrow()
  await cluster.write('app', { insert: `${name} between`, documents: [{ _id: 0 }] })
  await cluster.close()
  await proxy.deliver()
  const collections = await one.client.db('app').listCollections({}, { nameOnly: true }).toArray()
  const names = collections.map((collection) => collection.name).filter((one) => one.startsWith(name))
  expect(names.sort()).toEqual([`${name} before`, `${name} between`])
})
