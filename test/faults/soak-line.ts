import type { MetadataFigures } from './metadata-figures.ts'
import type { CycleReport } from './soak-run.ts'

/** Formats what happened in a cycle as one line. */
export function soakLine(report: CycleReport): string {
  const { seconds, after, lagSeconds, seed, operations, events, documents, problems, processes, metadata } = report
  const faults = Object.entries(report.faults).map(([name, count]) => `${name} ${count}`)
  const resources = processes.map(({ id, pid, whole, rssMB, rssMaxMB, openFiles, threads, sockets }) => {
    const name = `${id} (${pid}${whole ? '' : ', part of the cycle'})`
    return `${name} ${rssMB.toFixed(0)} MB, at most ${rssMaxMB.toFixed(0)}, ${openFiles} files, ${threads} threads, ${sockets} sockets`
  })
  return [
    `${seconds.toFixed(0)} s (faults until ${after.faults.toFixed(0)}, can commit at ${after.canCommit.toFixed(0)} with ${lagSeconds} s of lag, committed at ${after.committed.toFixed(0)}), seed "${seed}": ${operations} operations`,
    `faults: ${faults.length > 0 ? faults.join(', ') : 'none'}`,
    `${events} events applied`,
    problems.length === 0 ? `equal, ${documents} documents` : `${problems.length} problems`,
    ...resources,
    `metadata on cluster0 ${sizes(metadata.cluster0)}, on cluster1 ${sizes(metadata.cluster1)}`,
  ].join('; ')
}

function sizes({ documents, bytes, collections }: MetadataFigures): string {
  const each = Object.entries(collections).map(([name, one]) => `${name} ${one.documents}/${one.bytes}`)
  return `${documents} documents, ${bytes} bytes (${each.join(', ')})`
}
