import type { MongoClient } from 'mongodb'

/** Value of `userWriteBlockMode` in `serverStatus` while user writes are blocked. */
const blockedMode = 2

/** Returns whether setUserWriteBlockMode makes the server reject user writes. */
export async function writesBlocked(client: MongoClient): Promise<boolean> {
  const { repl } = await client.db('admin').command({ serverStatus: 1 })
  return repl.userWriteBlockMode === blockedMode
}
