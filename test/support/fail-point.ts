import type { Document, MongoClient } from 'mongodb'

export interface FailPoint extends AsyncDisposable {
  /** Resolves when the server has come to it, so many times. */
  reached(times?: number): Promise<unknown>
  release(): Promise<unknown>
}

/** Turns a fail point of a server on, for all times or as `mode` says. */
export async function failPoint(
  client: MongoClient,
  name: string,
  data: Document,
  mode: unknown = 'alwaysOn',
): Promise<FailPoint> {
  const admin = client.db('admin')
  const { count } = await admin.command({ configureFailPoint: name, mode, data })
  const release = () => admin.command({ configureFailPoint: name, mode: 'off' })
  return {
    reached: (times = 1) => admin.command({ waitForFailPoint: name, timesEntered: count + times, maxTimeMS: 20_000 }),
    release,
    [Symbol.asyncDispose]: async () => void (await release()),
  }
}

/** Keeps the documents of one collection from the destination until released. */
export const holdCopy = (destination: MongoClient, namespace: string): Promise<FailPoint> =>
  failPoint(destination, 'hangDuringBatchInsert', { nss: namespace })

/** Makes a command on one collection of the destination fail for now, so that tandem tries it again and again. */
export const holdCommand = (destination: MongoClient, command: string, namespace: string): Promise<FailPoint> =>
  failPoint(destination, 'failCommand', { failCommands: [command], namespace, errorCode: 91 })

/** A command fails for now when tandem sends it, so that tandem retries it; other clients' commands are executed. */
export async function holdTandem(client: MongoClient, command: string, namespace?: string): Promise<FailPoint> {
  const appName = await tandemsName(client)
  // ExceededTimeLimit: tried again, on the connection it has.
  const data = { failCommands: [command], errorCode: 262, appName, ...(namespace ? { namespace } : {}) }
  return await failPoint(client, 'failCommand', data)
}

/** What the tandem process connected now calls itself: no other instance has the same name. */
async function tandemsName(client: MongoClient): Promise<string> {
  const names = await client
    .db('admin')
    .aggregate([
      { $currentOp: { allUsers: true, idleConnections: true } },
      { $match: { appName: /^tandem:/ } },
      { $group: { _id: '$appName' } },
    ])
    .toArray()
  if (names.length !== 1) throw new Error(`expected one tandem on the server, found ${names.length}`)
  return names[0]?.['_id'] as string
}
