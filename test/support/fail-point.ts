import type { Document, MongoClient } from 'mongodb'

export interface FailPoint extends AsyncDisposable {
  /** Resolves when the server has reached the fail point this many times since it was set. */
  reached(times?: number): Promise<unknown>
  release(): Promise<unknown>
}

/** Activates a fail point of a server, permanently or according to `mode`. */
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

/** Blocks inserts into one collection of the destination until the fail point is released. */
export const holdCopy = (destination: MongoClient, namespace: string): Promise<FailPoint> =>
  failPoint(destination, 'hangDuringBatchInsert', { nss: namespace })

/**
 * Makes a command on one collection of the destination fail with a transient error, so that tandem retries it until the
 * fail point is released.
 */
export const holdCommand = (destination: MongoClient, command: string, namespace: string): Promise<FailPoint> =>
  failPoint(destination, 'failCommand', { failCommands: [command], namespace, errorCode: 91 })

/**
 * Makes a command fail with a transient error if tandem sends it, so that tandem retries it. Commands of other clients
 * succeed.
 */
export async function holdTandem(client: MongoClient, command: string, namespace?: string): Promise<FailPoint> {
  const appName = await appNameOfTandem(client)
  // After ExceededTimeLimit, tandem retries the command on the same connection.
  const data = { failCommands: [command], errorCode: 262, appName, ...(namespace ? { namespace } : {}) }
  return await failPoint(client, 'failCommand', data)
}

/** Returns the `appName` of the connected tandem process, which is unique to the instance. */
async function appNameOfTandem(client: MongoClient): Promise<string> {
  const names = await client
    .db('admin')
    .aggregate([
      { $currentOp: { allUsers: true, idleConnections: true } },
      { $match: { appName: /^tandem:/ } },
      { $group: { _id: '$appName' } },
    ])
    .toArray()
  if (names.length !== 1) throw new Error(`expected one tandem instance on the server, found ${names.length}`)
  return names[0]?.['_id'] as string
}
