import zlib from 'node:zlib'
import { BSON, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { CheckedText, rawSequence } from '../../src/mongo/raw-values.ts'
import { Random } from '../support/random.ts'
import { testCluster } from './clusters.ts'
import { oneSet } from './one-set.ts'

/** Servers accept snappy, zstd and zlib by default (`networkMessageCompressors`). */

const one = oneSet()

/** zlib is part of Node.js, zstd since 22.15, and the package `snappy` is a development dependency. */
const compressors = ['zlib', 'snappy', ...('zstdCompress' in zlib ? ['zstd'] : [])]

const compressing = async (compressor: string, work: (cluster: Cluster) => Promise<void>): Promise<void> => {
  const cluster = testCluster(`${one.set.uri}&compressors=${compressor}`)
  try {
    await work(cluster)
  } finally {
    await cluster.close()
  }
}

/** Returns the bytes, before compression, that the server has received and sent with this compressor since it started. */
async function trafficOf(compressor: string): Promise<{ received: number; sent: number }> {
  const status = await one.client.db('admin').command({ serverStatus: 1 })
  const { decompressor, compressor: outgoing } = status['network'].compression[compressor] as Document
  return { received: Number(decompressor.bytesOut), sent: Number(outgoing.bytesIn) }
}

const large = (id: number, bytes: number): Buffer =>
  Buffer.from(BSON.serialize({ _id: id, filling: Buffer.alloc(bytes, id) }))

describe.each(compressors)('with compressors=%s', (compressor) => {
  it.for([
    ['small documents, sent as one message', 20, 60],
    ['large documents, sent in many pieces without compression', 3_000, 12_000],
  ] as const)(
    'a raw sequence of %s and raw batches are compressed on the network, and arrive byte for byte',
    async ([, least, most]) => {
      const random = new Random(`compressed ${most}`)
      const documents = Array.from({ length: 1_500 }, (_, id) => large(id, random.int(least, most)))
      const bytes = Buffer.concat(documents).length
      const before = await trafficOf(compressor)
      await compressing(compressor, async (cluster) => {
        const collection = `${compressor}_${most}`
        const command = { insert: collection, documents: rawSequence('documents', documents), ordered: false }
        expect(await cluster.write('app', command)).toMatchObject({ n: documents.length })
        const read: Buffer[] = []
        const cursor = await RawCursor.open(cluster, 'app', { find: collection, sort: { _id: 1 } })
        for (let batch = await cursor.next(); batch; batch = await cursor.next()) read.push(...batch.documents)
        expect(Buffer.concat(read).equals(Buffer.concat(documents))).toBe(true)
      })
      const after = await trafficOf(compressor)
      expect(after.received - before.received).toBeGreaterThan(bytes)
      expect(after.sent - before.sent).toBeGreaterThan(bytes)
    },
  )

  it('a CheckedText is checked again after the compression of its message, so a message whose check fails then is not sent', async () => {
    await compressing(compressor, async ({ client }) => {
      const db = client.db(`checked_${compressor}`)
      await db.command({ ping: 1 })
      let isLost = false
      const comment = new CheckedText('too late', () => {
        if (isLost) throw new Error('the lease is lost')
        // Compression takes at least one turn of the event loop, so the lease is lost before the compression ends.
        process.nextTick(() => {
          isLost = true
        })
      })
      const documents = [{ _id: 1 as never }]
      await expect(db.command({ insert: 'things', documents, comment })).rejects.toThrow('the lease is lost')
      expect(await db.collection('things').countDocuments()).toBe(0)
      await db.command({ insert: 'things', documents })
      expect(await db.collection('things').countDocuments()).toBe(1)
    })
  })
})
