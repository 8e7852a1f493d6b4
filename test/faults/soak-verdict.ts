import { auditEntriesMax } from '../../src/domain/audit-entry.ts'
import { judgeFlat } from './flat.ts'
import type { CycleReport } from './soak-run.ts'
import type { LifeFigures } from './soak-watch.ts'

export interface Judgement {
  name: string
  line: string
  /** Null: too few cycles to say. */
  flat: boolean | null
}

type Slack = { [figure in keyof Pick<LifeFigures, 'rssMB' | 'openFiles' | 'sockets' | 'threads'>]: number }

/** What comes and goes from one cycle to the next: a heap that has not been collected, connections of a pool, a burst of drops. */
const lifeSlack: Slack = { rssMB: 32, openFiles: 12, sockets: 12, threads: 4 }
const metadataSlack = { documents: 100, bytes: 64 * 1024 }
/** Documents yet to be compared, which a burst or a fault leaves until the verdict. */
const recheckSlack = { documents: 10_000, bytes: 1024 * 1024 }

/**
 * Whether what a process or the metadata takes is the same at the end as it was when all had warmed up: `judgeFlat` on the
 * figures of each cycle. A process is judged by the cycles that it lived through as a whole, so each at its own age, and only
 * when they are enough; the metadata database by its size on both clusters before each commit. What has a bound of its own, the
 * audit trail, is held to that.
 */
export function judgeSoak(reports: readonly CycleReport[]): Judgement[] {
  const lives = new Map<string, LifeFigures[]>()
  for (const one of reports.flatMap(({ processes }) => processes)) {
    const key = `${one.id} (${one.pid})`
    if (one.whole) lives.set(key, [...(lives.get(key) ?? []), one])
  }
  const judgements: Judgement[] = []
  for (const [life, cycles] of lives) {
    for (const [figure, slack] of Object.entries(lifeSlack) as [keyof Slack, number][]) {
      const judgement = judge(
        `${figure} of ${life}`,
        cycles.map((cycle) => cycle[figure]),
        slack,
      )
      // Of one that did not live long there is nothing to say.
      if (judgement.flat !== null) judgements.push(judgement)
    }
  }
  for (const [figure, slack] of Object.entries(metadataSlack) as [keyof typeof metadataSlack, number][]) {
    const ofAll = reports.map(({ metadata }) => sum(Object.values(metadata).map((one) => one[figure])))
    const [rechecks, audit] = ['rechecks', 'audit'].map((name) => reports.map((report) => sizeOf(report, name, figure)))
    const others = ofAll.map((all, at) => all - (rechecks?.[at] ?? 0) - (audit?.[at] ?? 0))
    judgements.push(judge(`${figure} of metadata but rechecks and audit`, others, slack))
    judgements.push(judge(`${figure} of rechecks`, rechecks ?? [], recheckSlack[figure]))
  }
  judgements.push(judgeAudit(reports))
  return judgements
}

function sizeOf({ metadata }: CycleReport, collection: string, figure: keyof typeof metadataSlack): number {
  return sum(Object.values(metadata).map(({ collections }) => collections[collection]?.[figure] ?? 0))
}

/** It grows with every command and is cut off at its bound, which a soak may never reach. */
function judgeAudit(reports: readonly CycleReport[]): Judgement {
  const most = Math.max(0, ...reports.map((report) => sizeOf(report, 'audit', 'documents')))
  const flat = most <= auditEntriesMax
  return {
    name: 'audit',
    flat,
    line: `${flat ? 'ok  ' : 'FAIL'} entries of audit: ${most}, at most ${auditEntriesMax}`,
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0)
}

function judge(name: string, values: readonly number[], slack: number): Judgement {
  const judged = judgeFlat(values, slack)
  if (!judged) return { name, flat: null, line: `     ${name}: ${values.length} cycles are too few to be judged` }
  const { first, last, limit, flat } = judged
  const figures = `${first.toFixed(0)} after the first cycle, ${last.toFixed(0)} in the last of ${values.length}, at most ${limit.toFixed(0)}`
  return { name, flat, line: `${flat ? 'ok  ' : 'FAIL'} ${name}: ${figures}` }
}
