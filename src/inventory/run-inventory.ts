import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import {
  compareClusters,
  type InventoryDifference,
  type InventoryReport,
  type NotCompared,
} from './compare-clusters.ts'
import { InventoryCluster, InventoryError } from './inventory-cluster.ts'

export interface InventoryOptions {
  cluster0: string
  cluster1: string
  json: boolean
}

export interface InventoryOutput {
  out: (text: string) => unknown
  err: (text: string) => unknown
}

/**
 * Runs `tandem inventory`: compares the items that tandem does not sync, and prints the differences with the commands
 * that make cluster1 equal to cluster0. Returns the exit code. 0: nothing differs. 1: something differs. 2: nothing that
 * was compared differs, but not everything could be compared, or the comparison has failed.
 */
export async function runInventory(options: InventoryOptions, output: InventoryOutput): Promise<0 | 1 | 2> {
  const clusters: InventoryCluster[] = []
  try {
    const left = new InventoryCluster('cluster0', options.cluster0)
    clusters.push(left)
    const right = new InventoryCluster('cluster1', options.cluster1)
    clusters.push(right)
    const report = await compareClusters(left, right)
    output.out(options.json ? `${JSON.stringify(report, null, 2)}\n` : reportText(report))
    if (report.differences.length > 0) return 1
    return report.notCompared.length > 0 ? 2 : 0
  } catch (error) {
    // A bug must not exit with 1, which means that something differs.
    const message = error instanceof InventoryError ? error.message : redactUris(`a bug in inventory: ${String(error)}`)
    output.err(`error: ${printable(message)}\n`)
    return 2
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.close().catch(() => {})))
  }
}

/** Returns a script for mongosh. Everything in it is a comment except the commands that need no decision. */
function reportText({ differences, notCompared, compared }: InventoryReport): string {
  const lines: string[] = []
  if (differences.length > 0) lines.push('// For mongosh, connected to cluster1. Read it before you run it.')
  for (const difference of differences) lines.push(...linesOf(difference))
  for (const one of notCompared) lines.push(`// ${printable(notComparedLine(one))}`)
  const result = differences.length === 0 ? 'nothing differs' : `DIFFERENT in ${differences.length}`
  lines.push(`// ${result}; compared: ${compared.length === 0 ? 'nothing' : compared.join(', ')}`)
  return `${lines.join('\n')}\n`
}

function linesOf({ kind, name, how, fields, commands }: InventoryDifference): string[] {
  const what = {
    missing: 'is missing on cluster1',
    extra: 'is only on cluster1',
    different: `differs in ${fields.join(', ')}`,
  }[how]
  return [
    `// ${printable(`${kind} ${name} ${what}`)}`,
    ...commands.map(({ text, review }) => (review === undefined ? text : `// ${text} // ${review}`)),
  ]
}

function notComparedLine({ kind, cluster, reason, privilege }: NotCompared): string {
  const remedy = privilege === undefined ? '' : `; grant ${privilege}`
  return `not compared: ${kind}, on ${cluster}: ${redactUris(reason)}${remedy}`
}
