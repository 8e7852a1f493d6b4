import { MongoClient } from 'mongodb'
import { historyMax } from '../../src/coordination/ownership-store.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'

/** An instance that was killed, suspended or disconnected, or that left, and what others must take over from it. */
export interface Death {
  id: string
  /** Milliseconds since 1970 by the clock of this machine, which all instances share. */
  at: number
  how: string
  /** During a commit no events are applied, so only the coordinator role needs a new owner. */
  only: 'all' | 'coordinator'
  /** Whether another instance was running that could take over. A single instance that was suspended keeps what it owns. */
  others: boolean
  /** When the instance could act again, on the same clock; null if it did not return. */
  backAt: number | null
}

interface Line {
  claim: string
  epoch: number
  owner: string
  at: number
}

const leaseMS = 10_000
/** Twice the lease. */
const takeoverMaxMS = 20_000

export interface HistoryReport {
  problems: string[]
  slowestTakeoverMS: number
  takeovers: number
}

/**
 * Checks the stored history of owners. Each epoch that the history keeps must have an owner, no epoch may be missing between
 * two others, and another instance must take over in time from each owner that died.
 */
export async function checkHistory(destinationUri: string, deaths: readonly Death[]): Promise<HistoryReport> {
  await using client = await MongoClient.connect(destinationUri)
  const database = client.db(metadataDatabase)
  const stored = await database
    .collection<{ _id: string; owner: string; at: Date }>('ownershipHistory')
    .find()
    .toArray()
  const ownership = await database
    .collection<{ _id: string | number; epoch: number; last: { owner: string; since: Date } }>('ownership')
    .find()
    .toArray()
  const end = Date.now()
  const lines = stored.map(({ _id, owner, at }): Line => {
    const [claim = '', epoch] = _id.split(':')
    return { claim, epoch: Number(epoch), owner, at: at.getTime() }
  })
  const problems: string[] = []
  const byClaim = new Map<string, Line[]>()
  for (const line of lines) byClaim.set(line.claim, [...(byClaim.get(line.claim) ?? []), line])
  for (const { _id, epoch, last: present } of ownership) {
    const own = byClaim.get(String(_id)) ?? []
    byClaim.set(String(_id), own)
    // If an owner was killed before it wrote its history entry, only the claim names that owner until the next claim.
    if (!own.some((line) => line.epoch === epoch)) {
      own.push({ claim: String(_id), epoch, owner: present.owner, at: present.since.getTime() })
    }
    const history = own.sort((one, other) => one.epoch - other.epoch)
    const epochs = history.map((line) => line.epoch)
    // The history keeps only the newest epochs.
    const first = Math.max(1, epoch - historyMax + 1)
    if (epochs.some((one, at) => one !== first + at)) problems.push(`claim ${_id}: the epochs have gaps: ${epochs}`)
    const last = history.at(-1)
    if (last?.epoch !== epoch) problems.push(`claim ${_id}: at epoch ${epoch}, its history ends at ${last?.epoch}`)
    if (last?.owner !== present.owner) {
      problems.push(`claim ${_id}, epoch ${epoch}: owned by ${present.owner}, in the history by ${last?.owner}`)
    }
  }
  let slowestTakeoverMS = 0
  let takeovers = 0
  for (const death of deaths) {
    for (const [claim, history] of byClaim) {
      if (death.only === 'coordinator' && claim !== 'coordinator') continue
      const at = history.findLastIndex((line) => line.at <= death.at)
      const before = history[at]
      if (!before?.owner.startsWith(`${death.id}#`)) continue
      const after = history[at + 1]
      const tookMS = (after?.at ?? end) - death.at
      // No takeover is required if the sync ended before the instance was missed, or if there was no other instance.
      if (!after && (tookMS < takeoverMaxMS || !death.others)) continue
      if (keptLease(death, after?.at)) continue
      takeovers += 1
      slowestTakeoverMS = Math.max(slowestTakeoverMS, tookMS)
      if (!after) problems.push(`claim ${claim}: ${before.owner} died (${death.how}), no instance took over`)
      else if (tookMS > takeoverMaxMS) {
        problems.push(`claim ${claim}: ${before.owner} died (${death.how}), taken over after ${tookMS} ms`)
      }
    }
  }
  return { problems, slowestTakeoverMS, takeovers }
}

/**
 * True if the instance was back before its lease could expire, and renewed the lease. If its claims changed owners later,
 * they did so for another reason.
 */
function keptLease({ at, backAt }: Death, changedAt: number | undefined): boolean {
  return backAt !== null && backAt - at < leaseMS && (changedAt === undefined || changedAt > backAt)
}
