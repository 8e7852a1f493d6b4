import { expect, it } from 'vitest'
import { readFacts } from '../../src/mongo/identity.ts'
import { claimPorts } from '../support/free-ports.ts'
import { testCluster } from './clusters.ts'

it('the first read of a cluster that does not accept connections fails with the reason', async () => {
  const claimed = await claimPorts(1)
  const cluster = testCluster(`mongodb://127.0.0.1:${claimed.ports[0]}/`, 'unreachable')
  try {
    await expect(readFacts(cluster)).rejects.toThrow(/ECONNREFUSED/)
  } finally {
    await cluster.close()
    claimed.release()
  }
})
