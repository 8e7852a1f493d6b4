import type { MongoClient } from 'mongodb'

const blockedMode = 2

/** Whether the server refuses user writes, as setUserWriteBlockMode has it. */
export async function writesBlocked(client: MongoClient): Promise<boolean> {
  const { repl } = await client.db('admin').command({ serverStatus: 1 })
  return repl.userWriteBlockMode === blockedMode
}
