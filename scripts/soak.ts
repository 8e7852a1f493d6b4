import { appendFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { Random } from '../test/support/random.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'
import { soakFaultKinds } from '../test/support/soak-faults.ts'
import { soakLine } from '../test/support/soak-line.ts'
import { type LegReport, SoakRun } from '../test/support/soak-run.ts'
import { judgeSoak } from '../test/support/soak-verdict.ts'

/**
 * One sync to and fro between two replica sets, for as long as asked, under the random workload and faults of all kinds:
 *   npm run soak -- --minutes 90 [--seed 1] [--instances 2] [--members 1] [--legs 60-300] [--faults kill,stop]
 *     [--paces 8,25,80] [--log soak.jsonl]
 * One line for each leg, compared byte for byte after its commit; at the end, whether memory, files and metadata stayed flat.
 */
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    seed: { type: 'string', default: '1' },
    instances: { type: 'string', default: '2' },
    members: { type: 'string', default: '1' },
    legs: { type: 'string', default: '60-300' },
    paces: { type: 'string' },
    faults: { type: 'string', default: soakFaultKinds.join(',') },
    log: { type: 'string' },
  },
})
const { seed, log } = values
const [shortest = 60, longest = shortest] = values.legs.split('-').map(Number)
const paces = values.paces?.split(',').map(Number)
if (paces?.some((pace) => !(pace > 0))) throw new Error('--paces takes steps a second, such as 8,25,80')
const lastSeconds = Math.min(60, longest)
const faults = values.faults.split(',')
const unknown = faults.filter((kind) => !soakFaultKinds.includes(kind))
if (unknown.length > 0) throw new Error(`--faults takes ${soakFaultKinds.join(',')}`)
const instances = Number(values.instances)
if (!(instances >= 2 && instances <= 5)) throw new Error('--instances takes 2 to 5')

if (log) writeFileSync(log, '')
const note = (record: Record<string, unknown>): void => {
  if (log) appendFileSync(log, `${JSON.stringify({ at: new Date().toISOString(), ...record })}\n`)
}
const options = { members: Number(values.members), oplogSizeMB: 4_096, proxied: true }
const [source, destination] = await Promise.all([startReplicaSet(options), startReplicaSet(options)])
const run = new SoakRun({ pair: { source, destination }, seed, instances })
const lengths = new Random(`lengths ${seed}`)
const reports: LegReport[] = []
let failure: string | null = null
let passed = 0

note(values)
const end = Date.now() + Number(values.minutes) * 60_000
while (failure === null) {
  const left = (end - Date.now()) / 1_000
  const seconds = lengths.int(shortest, longest)
  const last = left <= seconds
  try {
    const work = last ? { seconds: lastSeconds, faults: [] } : { seconds, faults }
    const report = await run.leg({ ...work, ...(paces && { paces }) })
    reports.push(report)
    note({ ...report })
    console.log(soakLine(report))
    for (const problem of report.problems.slice(0, 10)) console.log(`     ${problem}`)
    if (report.problems.length > 0) failure = `leg ${report.leg}`
    else passed += 1
  } catch (error) {
    failure = `leg ${reports.length + 1}`
    const what = error instanceof Error ? (error.stack ?? error.message) : String(error)
    console.log(`FAIL ${failure}: ${what}`)
    note({ failure, what })
  }
  if (last) break
}

const verdict = judgeSoak(reports)
for (const { line } of verdict) console.log(line)
note({ verdict })
const notFlat = verdict.filter(({ flat }) => flat === false)
passed += verdict.filter(({ flat }) => flat === true).length
const failed = [...(failure === null ? [] : [failure]), ...notFlat.map(({ name }) => name)]
const folder = await run.stop(failed.length > 0)
await Promise.all([source.stop(), destination.stop()])
if (failed.length > 0) console.log(`seed ${seed}; what the instances said: ${folder}`)
console.log(`${passed} passed, ${failed.length} failed${failed.length > 0 ? `: ${failed.join(', ')}` : ''}`)
process.exit(failed.length > 0 ? 1 : 0)
