import type { MongoClient } from 'mongodb'

const megabyte = 'x'.repeat(1_000_000)
/** More than a fifth of the smallest cache, which has 256 MB. */
const documents = 70

/**
 * Fills the cache of a server with data that is not written to disk. The data is in `local`, so routers do not show it.
 * The server must not take checkpoints by itself (`--syncdelay`).
 */
export async function dirtyCache(server: MongoClient): Promise<{ clean(): Promise<void> }> {
  const admin = server.db('admin')
  const limits = ['dirty_target', 'dirty_trigger', 'updates_target', 'updates_trigger']
  const evictLate = limits.map((name) => `eviction_${name}=${name.endsWith('target') ? 80 : 90}`).join()
  await admin.command({ setParameter: 1, wiredTigerEngineRuntimeConfig: evictLate })
  for (let at = 0; at < documents; at += 10) {
    // The server accepts no retryable write there.
    const filler = Array.from({ length: 10 }, () => ({ megabyte }))
    await server.db('local').command({ insert: 'filler', documents: filler })
  }
  return { clean: async () => void (await admin.command({ fsync: 1 })) }
}

/** Arguments of a server that takes no checkpoint during a test. */
export const withoutCheckpoints = ['--syncdelay', '900']
