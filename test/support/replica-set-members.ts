import { setTimeout as delay } from 'node:timers/promises'
import { type Document, MongoClient } from 'mongodb'
import type { GuardedProcess } from './guarded-process.ts'
import { lastErrors } from './mongod-process.ts'

/** Long enough for an initial sync of secondaries, or for an election after a kill, on a machine with two busy cores. */
const primaryTimeoutMs = 180_000
const pollMs = 20
/** How long one poll waits for a member's reply, so that a suspended or starved member does not hold up the others. */
const replyPatienceMs = 1_000
/** Milliseconds after which a set without a primary starts an election. */
const electionTimeoutMs = 5_000

const administrator = { name: 'admin', password: 'secret' }

export interface Member {
  port: number
  host: string
  folder: string
  server: GuardedProcess
}

/** A custom role, which is created in `admin` before the user that receives it. */
export interface CustomRole {
  role: string
  privileges: Document[]
  roles?: Document[] | string[]
}

/**
 * Initiates the set with the first member, which becomes primary immediately, and then adds the others. With all members
 * from the beginning, the set would wait for the election timeout. With access control, the localhost exception allows the
 * initiation and the creation of the administrator, who then adds the others.
 */
export async function initiate(
  members: Member[],
  { name, auth, configsvr = false }: { name: string; auth: boolean; configsvr?: boolean },
): Promise<void> {
  const [first] = members
  if (!first) throw new Error('a replica set has at least one member')
  const configuration = {
    _id: name,
    version: 1,
    ...(configsvr ? { configsvr } : {}),
    members: members.map(({ host }, index) => ({ _id: index, host })),
    // Shorter than the defaults (10 s, 2 s), but long enough that a member that waits for a core causes no election.
    settings: { electionTimeoutMillis: electionTimeoutMs, heartbeatIntervalMillis: 500 },
  }
  const alone = { ...configuration, members: configuration.members.slice(0, 1) }
  await withMember(first.port, (client) => client.db('admin').command({ replSetInitiate: alone }))
  await findPrimary([first])
  const { name: user, password } = administrator
  if (auth) await withMember(first.port, (client) => createUser(client, user, password, ['root']))
  if (members.length === 1) return
  // Without `force`, a reconfiguration may add only one voting member at a time.
  const reconfiguration = { replSetReconfig: { ...configuration, version: 2 }, force: true }
  await withMember(first.port, (client) => client.db('admin').command(reconfiguration), administratorCredentials(auth))
}

export async function createUser(
  client: MongoClient,
  user: string,
  password: string,
  roles: (string | Document | CustomRole)[],
): Promise<void> {
  const admin = client.db('admin')
  const granted: (string | Document)[] = []
  for (const role of roles) {
    if (typeof role === 'object' && 'privileges' in role) {
      await admin.command({ createRole: role['role'], privileges: role['privileges'], roles: role['roles'] ?? [] })
      granted.push({ role: role['role'], db: 'admin' })
    } else {
      granted.push(role)
    }
  }
  await admin.command({ createUser: user, pwd: password, roles: granted })
}

export async function stepDown(client: MongoClient, memberCount: number): Promise<void> {
  const admin = client.db('admin')
  if (memberCount > 1) {
    await replicate(client, 'majority')
    await admin.command({ replSetStepDown: 60, secondaryCatchUpPeriodSecs: 10 })
    return
  }
  // A single member cannot be elected again before the period ends. One second is the shortest period, and clients notice
  // the interruption.
  await admin.command({ replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true })
}

/**
 * Makes the member start an election after a restart, before the election timeout. Several attempts may be needed,
 * because the member must see a majority first.
 */
export async function stepUp(client: MongoClient): Promise<void> {
  const admin = client.db('admin')
  const deadline = Date.now() + electionTimeoutMs
  while (Date.now() < deadline) {
    const elected = await admin.command({ replSetStepUp: 1 }).catch(() => null)
    if (elected) return
    await delay(100)
  }
}

/** Waits for a primary and returns it. */
export async function findPrimary(members: Member[]): Promise<Member> {
  const hellos = await waitForMembers(members, 'a primary', {
    condition: (replies) => replies.some((hello) => hello?.['isWritablePrimary']),
    isHopeless: () => members.every(({ server }) => !server.isRunning()),
  })
  return members[hellos.findIndex((hello) => hello?.['isWritablePrimary'])] as Member
}

/**
 * Waits for a primary and until every other member is a secondary that replicates from it, so that majority writes and
 * elections work immediately.
 */
export async function waitUntilReady(members: Member[], credentials: string): Promise<void> {
  await waitForMembers(members, 'a primary and its secondaries', {
    condition: (replies) =>
      replies.some((hello) => hello?.['isWritablePrimary']) &&
      replies.every((hello) => hello?.['isWritablePrimary'] || hello?.['secondary']),
    isHopeless: () => members.some(({ server }) => !server.isRunning()),
  })
  if (members.length === 1) return
  const primary = await findPrimary(members)
  await withMember(primary.port, (client) => replicate(client, members.length), credentials)
}

/**
 * Writes an oplog no-op and waits until members have replicated it. Secondaries that are not behind choose no sync source and
 * report no position. Without a write to replicate, a primary that steps down would wait for them until its timeout.
 */
async function replicate(client: MongoClient, w: number | 'majority'): Promise<void> {
  const writeConcern = { w, wtimeout: primaryTimeoutMs }
  await client.db('admin').command({ appendOplogNote: 1, data: { why: 'test support' }, writeConcern })
}

/**
 * Polls every member's `hello`, which needs no authentication, until the condition holds. The reply is null for a member
 * that does not answer. Throws when the members that still run cannot meet the condition.
 */
async function waitForMembers(
  members: Member[],
  what: string,
  rules: { condition(hellos: (Document | null)[]): boolean; isHopeless(): boolean },
): Promise<(Document | null)[]> {
  const polled = members.map(pollHello)
  const deadline = Date.now() + primaryTimeoutMs
  try {
    for (;;) {
      const hellos = await Promise.all(polled.map(({ next }) => next()))
      if (rules.condition(hellos)) return hellos
      const isLate = Date.now() > deadline
      if (isLate || rules.isHopeless()) {
        const found = await Promise.all(members.map((member, index) => describe(member, hellos[index])))
        const waited = isLate ? `waited ${primaryTimeoutMs / 1000} s for ${what}` : `the set cannot have ${what}`
        throw new Error([waited, ...found].join('\n'))
      }
      await delay(pollMs)
    }
  } finally {
    await Promise.all(polled.map(({ close }) => close()))
  }
}

/**
 * Requests `hello` from a member again and again. A request that is not answered in time stays under way, and `next`
 * returns its reply later. A slow request must not fail: if the first connection of a client fails, the driver (7.8,
 * `autoConnect` in execute_operation.js) refuses all later commands of that client.
 */
function pollHello({ port, server }: Member): { next(): Promise<Document | null>; close(): Promise<void> } {
  const client = new MongoClient(directUri(port), { serverSelectionTimeoutMS: primaryTimeoutMs })
  let request: Promise<Document | null> | null = null
  const ask = async (): Promise<Document | null> => {
    const reply = await client
      .db('admin')
      .command({ hello: 1 })
      .catch(() => null)
    request = null
    return reply
  }
  return {
    next: async () => {
      if (!server.isRunning()) return null
      request ??= ask()
      return await Promise.race([request, delay(replyPatienceMs, null, { ref: false })])
    },
    close: () => client.close(),
  }
}

/** Describes the state of a member: its last reply, or what its log shows if there is no reply. */
async function describe({ port, folder, server }: Member, hello: Document | null | undefined): Promise<string> {
  const state = server.isRunning() ? `runs as ${server.pid}` : `exited with ${await server.ended}`
  const shown = hello ? JSON.stringify(hello) : `no reply to \`hello\`:\n${lastErrors(folder)}`
  return `member on port ${port} ${state}: ${shown}`
}

export async function withMember<T>(
  port: number,
  work: (client: MongoClient) => Promise<T>,
  credentials = '',
): Promise<T> {
  const client = new MongoClient(directUri(port, credentials))
  try {
    return await work(client)
  } finally {
    await client.close()
  }
}

export function administratorCredentials(auth: boolean): string {
  return auth ? `${administrator.name}:${administrator.password}@` : ''
}

export function directUri(port: number, credentials = ''): string {
  return `mongodb://${credentials}127.0.0.1:${port}/?directConnection=true`
}
