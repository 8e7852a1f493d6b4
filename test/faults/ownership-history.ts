import { MongoClient } from 'mongodb'
import { historyMax } from '../../src/coordination/ownership-store.ts'

/** An instance that was killed, stopped, cut off or left, and what others were to take over from it. */
export interface Death {
  id: string
  /** ms since 1970, by the clock of this machine, which all instances share. */
  at: number
  how: string
  /** Where nobody applies events any more only the coordinator's office is vacant. */
  only: 'all' | 'coordinator'
}

interface Line {
  claim: string
  epoch: number
  owner: string
  at: number
}

/** Twice the lease. */
const takeoverMaxMS = 20_000

export interface HistoryReport {
  problems: string[]
  slowestTakeoverMS: number
  takeovers: number
}

/** What the metadata database says of every owner there was: one for each epoch that is remembered, none left out, none dead for long. */
export async function checkHistory(destinationUri: string, deaths: readonly Death[]): Promise<HistoryReport> {
  await using client = await MongoClient.connect(destinationUri)
  const database = client.db('tandem_internal')
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
    // Who was killed before he could write his line stands in the claim alone until there is a successor.
    if (!own.some((line) => line.epoch === epoch)) {
      own.push({ claim: String(_id), epoch, owner: present.owner, at: present.since.getTime() })
    }
    const history = own.sort((one, other) => one.epoch - other.epoch)
    const epochs = history.map((line) => line.epoch)
    // The oldest are forgotten.
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
      // Released before, or the sync was over before anybody missed it.
      if (!after && tookMS < takeoverMaxMS) continue
      takeovers += 1
      slowestTakeoverMS = Math.max(slowestTakeoverMS, tookMS)
      if (!after) problems.push(`claim ${claim}: ${before.owner} died (${death.how}), nobody took over`)
      else if (tookMS > takeoverMaxMS) {
        problems.push(`claim ${claim}: ${before.owner} died (${death.how}), taken over after ${tookMS} ms`)
      }
    }
  }
  return { problems, slowestTakeoverMS, takeovers }
}
