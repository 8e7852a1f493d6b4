import type { CollectionsAnswer } from '../api/collections-schema.ts'
import { percentOf } from '../domain/instances.ts'
import { printable } from '../domain/printable.ts'
import { type Answer, inUnits, notes } from './answers.ts'
import { type Column, renderTable } from './table.ts'

/** Prints the answers of `tandem collections` as one table, from one instance: each reports all collections of the sync. */

type Row = CollectionsAnswer['collections'][number]

const columns: Column[] = [
  { title: 'collection', align: 'left', cellsMin: 12 },
  { title: 'copied', align: 'right' },
  { title: 'documents', align: 'right' },
  { title: 'indexes', align: 'left', cellsMin: 7 },
  { title: 'verification', align: 'left', cellsMin: 12 },
  { title: 'mismatches', align: 'right' },
]

export function collectionsTable(answers: readonly Answer[], width: number): string[] {
  const reports = answers.flatMap(({ reply }) => (reply['success'] === true ? [reply as CollectionsAnswer] : []))
  const [most] = reports.sort((one, other) => other.total - one.total)
  if (!most) return notes([], answers)
  const { collections, total } = most
  const left = total - collections.length
  return [
    ...renderTable(columns, collections.map(cellsOf), width),
    ...(left > 0 ? [`${left} of ${total} collections are not on this page; --limit and --after show others`] : []),
    ...notes([], answers),
  ]
}

function cellsOf({ namespace, destinationNamespace, copy, indexes, verification, mismatches }: Row): string[] {
  const { ended, copiedDocumentCount: copied, estimatedDocumentCount: all } = copy
  return [
    printable(destinationNamespace === undefined ? namespace : `${namespace} → ${destinationNamespace}`),
    ended
      ? `${inUnits(copy.estimatedTotalBytes)}, all`
      : `${copy.converging ? 'converging, ' : ''}${inUnits(copy.estimatedCopiedBytes)} / ${inUnits(copy.estimatedTotalBytes)}`,
    ended ? grouped(copied) : `${grouped(copied)} / ${grouped(all)}`,
    indexesOf(indexes),
    verification ? verificationOf(verification) : 'off',
    mismatches === 0 ? '-' : grouped(mismatches),
  ]
}

function indexesOf({ total, built, heldBack, missing }: Row['indexes']): string {
  if (total === 0) return '-'
  const more = [...(heldBack > 0 ? [`${heldBack} deferred`] : []), ...(missing > 0 ? [`${missing} missing`] : [])]
  return [`${built} / ${total}`, ...more].join(', ')
}

function verificationOf({ phase, hashedRanges, totalRanges }: NonNullable<Row['verification']>): string {
  return phase === 'initial hashing' ? `${phase} ${Math.floor(percentOf(hashedRanges, totalRanges))} %` : phase
}

function grouped(count: number): string {
  return count.toLocaleString('en')
}
