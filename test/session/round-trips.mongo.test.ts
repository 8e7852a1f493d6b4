import { expect, it, vi } from 'vitest'
import { WorkMeter } from '../../src/domain/work-meter.ts'
import { RoundTrips } from '../../src/session/round-trips.ts'
import { testCluster } from '../mongo/clusters.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import { directUri } from '../support/replica-set-members.ts'
import { startProxy } from '../support/tcp-proxy.ts'

const roundTripMS = 100

it('the first ping, for which a connection is opened, does not decide the round trip until the next regular ping', async () => {
  await using set = await borrowReplicaSet()
  const port = Number(/:(\d+)/.exec(set.uri.slice('mongodb://'.length))?.[1])
  await using proxy = await startProxy('127.0.0.1', port, { delayMS: roundTripMS / 2 })
  const source = testCluster(directUri(proxy.port))
  const destination = testCluster(directUri(proxy.port))
  try {
    const meter = new WorkMeter()
    const roundTrips = new RoundTrips({ source, destination }, meter)
    const { sourcePing, destinationPing } = meter.durations
    for (const pings of [1, 2, 3]) {
      roundTrips.measure(() => {}, false)
      await vi.waitFor(() => expect([sourcePing.count, destinationPing.count]).toEqual([pings, pings]), 20_000)
    }
    // A busy machine delays a ping, but hardly each of them by another round trip.
    const { fastestMS } = roundTrips
    for (const ms of [fastestMS.source, fastestMS.destination]) {
      expect(ms).toBeGreaterThanOrEqual(roundTripMS - 1)
      expect(ms).toBeLessThan(2 * roundTripMS)
    }
    roundTrips.measure(() => {}, false)
    await source.read('admin', { hello: 1 })
    expect(sourcePing.count).toBe(3)
  } finally {
    await Promise.all([source.close(), destination.close()])
  }
})
