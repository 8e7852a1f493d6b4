import { type RefusalName, refusalStatus } from '../domain/errors.ts'
import { type InstanceRow, type InstancesTotals, percentOf, totalsOf } from '../domain/instances.ts'
import { printable } from '../domain/printable.ts'
import type { Progress } from '../domain/progress.ts'
import { errorLine } from './error-line.ts'
import { type Column, renderTable } from './table.ts'

/** The answers of several instances as one table. Text that does not fit into cells follows in full below the table. */

export interface Answer {
  url: string
  reply: Record<string, unknown>
  /** The HTTP status; null if the reply does not come from an instance. */
  status: number | null
  /** True if an instance may have received the command, but none has answered it. */
  outcomeUnknown?: boolean
}

/** One instance in the table. `progress` is null if it did not answer; `partitions` is absent if they are unknown. */
export interface Line extends Pick<InstanceRow, 'coordinator'> {
  id: string
  status: string
  progress: Progress | null
  partitions?: number[]
}

const idCellsMin = 12

export function progressTable(answers: readonly Answer[], width: number): string[] {
  const lines = answers.map(({ url, reply }): Line => {
    if (reply['success'] !== true)
      return { id: host(url), coordinator: false, status: text(reply['error']), progress: null }
    const progress = reply['progress'] as Progress
    const id = progress.mongosyncID ?? host(url)
    return { id, coordinator: progress.coordinatorID === id, status: 'alive', progress }
  })
  const answered = lines.flatMap(({ progress }) => (progress ? [{ status: 'alive' as const, progress }] : []))
  return [...statusTable(lines, totalsOf(answered), width), ...notes(lines, answers)]
}

export function instancesTable(answers: readonly Answer[], width: number): string[] {
  const rows = freshest(
    answers.flatMap(({ reply }) => (reply['success'] === true ? (reply['instances'] as InstanceRow[]) : [])),
  )
  const lines = rows.map(lineOf)
  // If no instance answered, there is no table, and the notes give the reasons.
  const table = rows.length === 0 ? [] : statusTable(lines, totalsOf(rows), width)
  return [...table, ...notes(lines, answers)]
}

/** Converts one row of an `instances` answer. */
export function lineOf({ mongosyncID, status, lastSeenSeconds, coordinator, progress, partitions }: InstanceRow): Line {
  const shown = status === 'lost' ? `lost, ${lastSeenSeconds} s` : status
  return { id: mongosyncID, coordinator, status: shown, progress, partitions }
}

/**
 * The answer of an instance that passed the command on contains the answers of all instances. Replaces such an answer
 * with those that it contains. All other answers, such as a refusal by that instance alone, stay as they are.
 */
export function ofEachInstance(answers: readonly Answer[]): Answer[] {
  return answers.flatMap((answer) => {
    const each = answer.reply['answers'] as Record<string, Answer['reply']> | undefined
    if (!each) return [answer]
    return Object.entries(each).map(([id, reply]) => ({ url: id, reply, status: statusOf(reply) }))
  })
}

/** Returns the HTTP status that this reply alone would have. The whole answer has the status of its first refusal. */
function statusOf(reply: Answer['reply']): number {
  return reply['success'] === true ? 200 : (refusalStatus[reply['error'] as RefusalName] ?? 500)
}

/** The table of a command whose answer is only success or failure. */
export function outcomeTable(answers: readonly Answer[], width: number): string[] {
  const columns: Column[] = [
    { title: 'instance', align: 'left', cellsMin: idCellsMin },
    { title: 'answer', align: 'left', cellsMin: idCellsMin },
  ]
  const rows = answers.map(({ url, reply: { success, warnings: _, ...rest } }) => {
    const details = Object.entries(rest).map(([name, value]) => `, ${name}: ${JSON.stringify(value)}`)
    return [printable(host(url)), printable(success === true ? `success${details.join('')}` : text(rest['error']))]
  })
  return [...renderTable(columns, rows, width), ...notes([], answers)]
}

/**
 * Returns the most recent row of each instance. Each answer has a row for every instance, and the row of an instance is
 * the most recent in its own answer.
 */
function freshest(rows: readonly InstanceRow[]): InstanceRow[] {
  const byId = new Map<string, InstanceRow>()
  for (const row of rows) {
    const known = byId.get(row.mongosyncID)
    if (!known || row.lastSeenSeconds < known.lastSeenSeconds) byId.set(row.mongosyncID, row)
  }
  return [...byId.values()]
}

export function statusTable(lines: readonly Line[], totals: InstancesTotals, width: number): string[] {
  const withCompared = totals.comparedDocumentCount !== undefined
  const compared = (documents: number | undefined): string[] =>
    withCompared ? [(documents ?? 0).toLocaleString('en')] : []
  const withPartitions = lines.some(({ partitions }) => partitions !== undefined)
  const columns: Column[] = [
    { title: 'instance', align: 'left', cellsMin: idCellsMin },
    { title: 'role', align: 'left', cellsMin: 5 },
    { title: 'status', align: 'left', cellsMin: 8 },
    { title: 'state', align: 'left' },
    { title: 'copied', align: 'right' },
    { title: 'lag', align: 'right' },
    { title: 'events', align: 'right' },
    ...(withCompared ? [{ title: 'verified', align: 'right' as const }] : []),
    ...(withPartitions ? [{ title: 'partitions', align: 'left' as const, cellsMin: 6 }] : []),
  ]
  const rows = lines.map(({ id, coordinator, status, progress, partitions }) => {
    const copy = progress?.collectionCopy
    return [
      printable(id),
      coordinator ? 'coordinator' : '',
      printable(status),
      progress?.state ?? '',
      copy ? copied(copy.estimatedCopiedBytes, copy.estimatedTotalBytes) : '-',
      seconds(progress?.lagTimeSeconds),
      progress?.totalEventsApplied?.toLocaleString('en') ?? '-',
      ...compared(progress?.comparedDocumentCount),
      partitions?.join(' ') ?? '',
    ]
  })
  const total = [
    'total',
    '',
    '',
    '',
    copied(totals.estimatedCopiedBytes, totals.estimatedTotalBytes),
    seconds(totals.lagTimeSeconds),
    totals.totalEventsApplied.toLocaleString('en'),
    ...compared(totals.comparedDocumentCount),
  ]
  return renderTable(columns, [...rows, total], width)
}

/**
 * Messages below the table. They are never truncated, because they say what to do. A message that several instances
 * share is printed once.
 */
export function notes(lines: readonly Line[], answers: readonly Answer[]): string[] {
  const sendersOf = new Map<string, string[]>()
  const say = (sender: string, message: string): void => {
    sendersOf.set(message, [...(sendersOf.get(message) ?? []), sender])
  }
  for (const { id, progress } of lines) {
    if (progress?.failure) say(id, errorLine(progress.failure))
    if (progress?.retrying) say(id, `retrying ${progress.retrying.what} since ${progress.retrying.since}`)
    for (const warning of progress?.warnings ?? []) say(id, `warning: ${warning}`)
  }
  for (const { url, reply, status } of answers) {
    for (const warning of (reply['warnings'] ?? []) as string[]) say(url, `warning: ${warning}`)
    // Errors of the client itself (no status) do not belong below the table; `runClient` prints them.
    if (reply['success'] !== true && status !== null) say(url, errorLine(reply))
  }
  return [...sendersOf].map(([message, senders]) => printable(`${senders.join(', ')}: ${message}`))
}

/** The address without its scheme. Addresses differ at their end, which would be truncated first. */
function host(url: string): string {
  return url.replace(/^https?:\/\//, '')
}

function copied(bytes: number, total: number): string {
  return `${inUnits(bytes)} / ${inUnits(total)} ${percentOf(bytes, total).toFixed(2).padStart(6)} %`
}

export function inUnits(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`
  const units = ['kB', 'MB', 'GB', 'TB', 'PB']
  let [value, at] = [bytes / 1_000, 0]
  // From 999.95 on, one decimal would show 1000.0.
  for (; value >= 999.95 && at < units.length - 1; at += 1) value /= 1_000
  return `${value.toFixed(1)} ${units[at]}`
}

function seconds(value: number | null | undefined): string {
  return typeof value === 'number' ? `${value} s` : '-'
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
