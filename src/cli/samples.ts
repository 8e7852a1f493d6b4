import type { InstanceRow, InstancesTotals } from '../domain/instances.ts'
import { totalsOf } from '../domain/instances.ts'
import type { Progress } from '../domain/progress.ts'
import type { Access } from './access.ts'
import { send } from './send.ts'

/** The answers of the instances at one moment. */
export interface Sample {
  /** Milliseconds since the epoch. */
  at: number
  /** Progress of the instances that answered, in the order of the addresses. */
  answered: Progress[]
  /**
   * The addresses that returned no progress, and the reason. `denied` means that the instance refused this client, so
   * waiting does not help.
   */
  unanswered: { url: string; why: string; denied?: true }[]
  /** All instances, as reported by the first one that answered; empty if there is no sync or no report. */
  rows: InstanceRow[]
  totals: InstancesTotals
}

/** An instance that has not answered after this many milliseconds is shown as not answering. */
const answerMS = 10_000

/**
 * Asks all addresses for their progress at the same time. Then asks the first one that answered for the status of all
 * instances of the sync.
 */
export async function takeSample({
  urls,
  access,
}: {
  urls: readonly string[]
  access?: Access | undefined
}): Promise<Sample> {
  const at = Date.now()
  const replies = await Promise.all(urls.map((url) => send(url, 'progress', '{}', { access, timeoutMS: answerMS })))
  const answered: Progress[] = []
  const unanswered: Sample['unanswered'] = []
  let first: string | null = null
  for (const { url, reply, status } of replies) {
    if (reply['success'] === true) {
      answered.push(reply['progress'] as Progress)
      first ??= url
    } else {
      const why = String(reply['errorDescription'] ?? reply['error'])
      unanswered.push({ url, why, ...((status === 401 || status === 403) && { denied: true as const }) })
    }
  }
  const report = first === null ? null : await send(first, 'instances', '{}', { access, timeoutMS: answerMS })
  const rows = report?.reply['success'] === true ? (report.reply['instances'] as InstanceRow[]) : []
  return { at, answered, unanswered, rows, totals: totalsOf(rows) }
}
