import { setTimeout as delay } from 'node:timers/promises'
import { type Document, MongoClient } from 'mongodb'
import type { GuardedProcess } from './guarded-process.ts'

/** Room for an initial sync of secondaries, or an election after a kill, on a machine with two busy cores. */
const primaryTimeoutMs = 180_000
const pollMs = 20
/** After this a set elects a primary by itself. */
const electionTimeoutMs = 5_000

const administrator = { name: 'admin', password: 'secret' }

export interface Member {
  port: number
  host: string
  folder: string
  server: GuardedProcess
}

/** A custom role, created in `admin` before the user that gets it. */
export interface CustomRole {
  role: string
  privileges: Document[]
  roles?: Document[] | string[]
}

/**
 * The first member alone is primary at once; with all members from the beginning it would wait for the election timeout.
 * With access control on, the localhost exception allows the first two steps as long as there is no user.
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
    // Quicker than the defaults (10 s, 2 s), yet no election for a member that waits a while for a core.
    settings: { electionTimeoutMillis: electionTimeoutMs, heartbeatIntervalMillis: 500 },
  }
  const alone = { ...configuration, members: configuration.members.slice(0, 1) }
  await withMember(first.port, (client) => client.db('admin').command({ replSetInitiate: alone }))
  await findPrimary([first])
  const { name: user, password } = administrator
  if (auth) await withMember(first.port, (client) => createUser(client, user, password, ['root']))
  if (members.length === 1) return
  // By force, for otherwise only one voting member may be added at a time.
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
  // Alone, a member may not stand for election again before the period is over. One second is the shortest there is, and
  // an interruption that clients notice.
  await admin.command({ replSetStepDown: 1, secondaryCatchUpPeriodSecs: 0, force: true })
}

/** Saves the election timeout after a restart. It takes a few attempts: the member must have heard of a majority first. */
export async function standForElection(client: MongoClient): Promise<void> {
  const admin = client.db('admin')
  const deadline = Date.now() + electionTimeoutMs
  while (Date.now() < deadline) {
    const elected = await admin.command({ replSetStepUp: 1 }).catch(() => null)
    if (elected) return
    await delay(100)
  }
}

/** The member that accepts writes, as soon as there is one. */
export async function findPrimary(members: Member[]): Promise<Member> {
  const isPrimary = await waitForMembers(members, 'a primary', (hellos) =>
    hellos.some((hello) => hello?.['isWritablePrimary']),
  )
  return members[isPrimary.findIndex((hello) => hello?.['isWritablePrimary'])] as Member
}

/** A primary, and every other member a secondary that replicates from it: majority writes and elections work at once. */
export async function settle(members: Member[], credentials: string): Promise<void> {
  await waitForMembers(
    members,
    'a primary and its secondaries',
    (hellos) =>
      hellos.some((hello) => hello?.['isWritablePrimary']) &&
      hellos.every((hello) => hello?.['isWritablePrimary'] || hello?.['secondary']),
  )
  if (members.length === 1) return
  const primary = await findPrimary(members)
  await withMember(primary.port, (client) => replicate(client, members.length), credentials)
}

/**
 * Writes an oplog no-op and waits until members have it. Secondaries that are not behind follow no member and so report
 * no position: without something to replicate, a primary stepping down waits for them in vain until its time is up.
 */
async function replicate(client: MongoClient, w: number | 'majority'): Promise<void> {
  const writeConcern = { w, wtimeout: primaryTimeoutMs }
  await client.db('admin').command({ appendOplogNote: 1, data: { why: 'test support' }, writeConcern })
}

/** Polls every member's `hello`, which needs no login; null for a member that does not answer. */
async function waitForMembers(
  members: Member[],
  what: string,
  condition: (hellos: (Document | null)[]) => boolean,
): Promise<(Document | null)[]> {
  const clients = members.map(({ port }) => new MongoClient(directUri(port), { serverSelectionTimeoutMS: 1000 }))
  const deadline = Date.now() + primaryTimeoutMs
  try {
    for (;;) {
      const hellos = await Promise.all(
        clients.map((client) =>
          client
            .db('admin')
            .command({ hello: 1 })
            .catch(() => null),
        ),
      )
      if (condition(hellos)) return hellos
      if (members.every(({ server }) => !server.isRunning())) {
        throw new Error(`every member ended before there was ${what}`)
      }
      if (Date.now() > deadline) {
        throw new Error(`waited ${primaryTimeoutMs / 1000} s for ${what}; members say ${JSON.stringify(hellos)}`)
      }
      await delay(pollMs)
    }
  } finally {
    await Promise.all(clients.map((client) => client.close()))
  }
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
