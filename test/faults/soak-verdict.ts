import { auditEntriesMax } from '../../src/domain/audit-entry.ts'
import { type Flatness, judgeFlat } from './flat.ts'
import type { CycleReport } from './soak-run.ts'
import type { ProcessCycleFigures } from './soak-watch.ts'

export interface Judgement {
  name: string
  line: string
  /** Null: there are too few cycles to judge. */
  flat: boolean | null
}

type Slack = { [figure in keyof Pick<ProcessCycleFigures, 'rssMB' | 'openFiles' | 'sockets' | 'threads'>]: number }

/** Allowed fluctuation between cycles, for example of heap that is not collected yet and of pooled connections. */
const lifeSlack: Slack = { rssMB: 32, openFiles: 12, sockets: 12, threads: 4 }
/** Memory may grow by ten percent within one cycle. */
const courseFactor = 1.1
/** A cycle with at least this many five-minute periods (half an hour) is also judged by itself. */
const coursePeriodsMin = 6
const metadataSlack = { documents: 100, bytes: 64 * 1024 }
/** Rechecks that a burst or a fault leaves pending until the verdict. */
const recheckSlack = { documents: 10_000, bytes: 1024 * 1024 }

/**
 * Judges whether the resources of the processes and the size of the metadata have stopped growing after the warm-up, by `judgeFlat`
 * on the figures of each cycle. A process is judged by the cycles through which it ran from beginning to end, if they are enough, and
 * by its memory in the course of each cycle of half an hour or more. The metadata database is judged by its size on both clusters
 * before each commit. The audit trail has a bound of its own and is judged by that bound.
 */
export function judgeSoak(reports: readonly CycleReport[]): Judgement[] {
  const byProcess = new Map<string, ProcessCycleFigures[]>()
  for (const one of reports.flatMap(({ processes }) => processes)) {
    const key = `${one.id} (${one.pid})`
    if (one.whole) byProcess.set(key, [...(byProcess.get(key) ?? []), one])
  }
  const judgements: Judgement[] = []
  for (const [processName, cycles] of byProcess) {
    for (const [figure, slack] of Object.entries(lifeSlack) as [keyof Slack, number][]) {
      const judgement = judge(
        `${figure} of ${processName}`,
        cycles.map((cycle) => cycle[figure]),
        slack,
      )
      // A process that ran for too few cycles is not judged.
      if (judgement.flat !== null) judgements.push(judgement)
    }
  }
  judgements.push(...reports.flatMap(judgeCourses))
  for (const [figure, slack] of Object.entries(metadataSlack) as [keyof typeof metadataSlack, number][]) {
    const ofAll = reports.map(({ metadata }) => sum(Object.values(metadata).map((one) => one[figure])))
    const [rechecks, audit] = ['rechecks', 'audit'].map((name) => reports.map((report) => sizeOf(report, name, figure)))
    const others = ofAll.map((all, at) => all - (rechecks?.[at] ?? 0) - (audit?.[at] ?? 0))
    judgements.push(judge(`${figure} of metadata without rechecks and audit`, others, slack))
    judgements.push(judge(`${figure} of rechecks`, rechecks ?? [], recheckSlack[figure]))
  }
  judgements.push(judgeAudit(reports))
  return judgements
}

function judgeCourses({ cycle, processes }: CycleReport): Judgement[] {
  return processes
    .filter(({ whole, rssCourseMB }) => whole && rssCourseMB.length >= coursePeriodsMin)
    .map(({ id, pid, rssCourseMB }) => {
      const name = `memory of ${id} (${pid}) in cycle ${cycle}`
      const { first, last, limit, flat } = judgeFlat(rssCourseMB, 0, courseFactor) as Flatness
      const course = `${rssCourseMB.map((rss) => rss.toFixed(0)).join(' ')} MB, one value for every five minutes`
      const figures = `first third ${first.toFixed(0)}, last third ${last.toFixed(0)}, at most ${limit.toFixed(0)}`
      return { name, flat, line: `${flat ? 'ok  ' : 'FAIL'} ${name}: ${figures}: ${course}` }
    })
}

function sizeOf({ metadata }: CycleReport, collection: string, figure: keyof typeof metadataSlack): number {
  return sum(Object.values(metadata).map(({ collections }) => collections[collection]?.[figure] ?? 0))
}

/** The audit trail grows with every command up to its bound, which a soak may never reach. */
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
