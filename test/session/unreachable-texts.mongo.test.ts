import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { PeerCommands } from '../../src/coordination/peer-commands.ts'
import { AuditStore } from '../../src/mongo/audit-store.ts'
import { CommandStore } from '../../src/mongo/command-store.ts'
import { Lease } from '../../src/mongo/lease.ts'
import { convergeIfLost } from '../../src/session/converge-if-lost.ts'
import { type Connection, InstanceCommands } from '../../src/session/instance-commands.ts'
import { LeasePatience } from '../../src/session/lease-patience.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { type FailPoint, failPoint } from '../support/fail-point.ts'

/** Answers with 503 ClusterUnreachable name the cluster that does not answer, and the driver's last error. */

const one = oneSet()
const context = testContext()
let closed: FailPoint
/** The server closes the connection instead of answering a command of tandem. */
beforeAll(async () => {
  const failCommands = ['find', 'update', 'insert', 'delete', 'aggregate', 'getMore', 'appendOplogNote']
  closed = await failPoint(one.client, 'failCommand', { failCommands, closeConnection: true, appName: 'tandem-test' })
})
afterAll(async () => {
  context.stop()
  await closed?.release()
})
const unreachable = {
  refusal: 'ClusterUnreachable',
  message: expect.stringMatching(/cluster0 does not answer \(MongoNetworkError: connection \d+ to [\d.:]+ closed\)/),
}

it('a command to all instances names the cluster', async () => {
  const session = {
    commands: new CommandStore(one.cluster),
    liveness: { instances: async () => [] },
    record: { generation: 0 },
  }
  const parts = { id: 'a', incarnation: '611', current: { session }, perform: async () => {}, context }
  await expect(new PeerCommands(parts).give({ command: 'pause' })).rejects.toMatchObject(unreachable)
})

it('the audit trail names the cluster', async () => {
  const connection = { audit: new AuditStore(one.cluster) } as unknown as Connection
  const instance = new InstanceCommands(connection, 'a', () => {})
  await expect(instance.audit()).rejects.toMatchObject(unreachable)
  await instance.close()
})

it('a resume names the source if it does not answer whether its oplog reaches back to the stored position', async () => {
  const limit = new AbortController()
  const session = {
    source: one.cluster,
    context: { ...context, onRetry: () => limit.abort() },
    peers: { load: async () => ({ matches: (state: string) => state === 'replicating' }) },
    metadata: { loadPartitions: async () => new Map([[0, { kind: 'time', time: 1n }]]) },
  } as unknown as SyncSession
  const resumed = convergeIfLost(session, true, new AbortController().signal, limit.signal)
  await expect(resumed).rejects.toMatchObject(unreachable)
})

it('a command that needs the lease names the cluster', async () => {
  const lease = new Lease(one.cluster, 'a', { id: 'a', incarnation: '611' }, context)
  const taken = lease.acquire().catch(() => {})
  await vi.waitFor(() => expect(lease.trouble).not.toBeNull(), { timeout: 30_000 })
  const patience = new LeasePatience('pause', { session: { lease, failureDetector: null } }, 1)
  await expect(patience.bounded(taken, 'nothing was changed')).rejects.toMatchObject(unreachable)
  await lease.release()
})

it('a command that waits for its lease while Redis is unavailable names Redis, and not the destination', async () => {
  const session = { lease: { trouble: null }, failureDetector: { holds: () => false } }
  const patience = new LeasePatience('pause', { session }, 1)
  await expect(patience.bounded(new Promise(() => {}), 'nothing was changed')).rejects.toThrow(
    /Redis \(--redis\) does not answer, and a lease is kept only while it does\. Check Redis and the network path to it, then send pause again/,
  )
})
