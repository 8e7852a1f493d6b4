/**
 * Measures how fast tandem is compared with the simplest program that does the same work on the same servers.
 *
 *   npm run bench -- [--quick] [--only copy|burst|hot|lag|verify|verification|cutover|memory|collections|empty|indexes|builds|instances|ddl|shared|secondaries|dashboards|converge|start|neighbours|directions|sharded] [--shape 1k|collections|10k] [--runs N] [--cache GB] [--json FILE]
 *                  [--profile DIR] [--case NAME] [--rtt MS] [--bandwidth MBIT] [--compressors LIST] [--scale SHARE] [--shards N] [--level N]
 *
 * Figures are medians over `--runs`. `--quick` does a tenth of the work; use it to try out the bench, not to measure
 * tandem. `--profile` writes a V8 CPU profile of every tandem process to DIR. The exit code is 1 if a measurement
 * fails. It is 0 even if a target is missed. `--case` runs one cutover case (see cutover-cases.ts). `--rtt` and `--bandwidth`
 * simulate a link between each cluster and the programs that are compared. `--rtt` is the round trip of the link in
 * milliseconds. `--bandwidth` is its rate in each direction in megabits per second. With either option, only the
 * sections in `linkedSections` run, and `--compressors` sets the option of that name in the connection strings of these
 * programs. `--scale` is the share of the full work to do, above 0 and at most 1. Use it if the
 * machine limits open files: 10,000 collections are at least 20,000 files on each server. The section `empty` takes a long
 * time and runs only if `--only` names it. `--shards` is the number of
 * shards of each cluster in the section `sharded`, 4 by default. `--level` is the one load level that the section
 * `neighbours` measures instead of all.
 */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { repositoryRoot } from '../test/support/mongo-binaries.ts'
import { benchBuildIndexes } from './build-indexes.ts'
import { benchBurst } from './burst.ts'
import { benchConverge } from './converge.ts'
import { benchCopy } from './copy.ts'
import { benchCutover } from './cutover.ts'
import { cutoverCases } from './cutover-cases.ts'
import { benchDashboards } from './dashboards.ts'
import { benchDdl } from './ddl.ts'
import { benchDirections } from './directions.ts'
import { benchStart } from './first-work.ts'
import { benchInstances } from './instances.ts'
import { benchLag } from './lag.ts'
import { shapes } from './load.ts'
import { machineFacts, machineLines } from './machine.ts'
import { benchManyCollections } from './many-collections.ts'
import { benchManyEmpty } from './many-empty.ts'
import { benchManyIndexes } from './many-indexes.ts'
import { benchMemory } from './memory.ts'
import { benchNeighbours } from './neighbours.ts'
import { linkedSections, type Measured, type Row, sections, tables } from './report.ts'
import { benchSecondaryReads } from './secondary-reads.ts'
import { shardedCases } from './sharded.ts'
import { benchSharedVerification } from './shared-verification.ts'
import { benchVerification } from './verification.ts'
import { benchVerify } from './verify.ts'

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    scale: { type: 'string', default: '1' },
    only: { type: 'string' },
    shape: { type: 'string' },
    runs: { type: 'string', default: '3' },
    cache: { type: 'string', default: '1' },
    json: { type: 'string' },
    profile: { type: 'string' },
    case: { type: 'string' },
    rtt: { type: 'string' },
    bandwidth: { type: 'string' },
    compressors: { type: 'string' },
    shards: { type: 'string', default: '4' },
    level: { type: 'string' },
  },
})
const runs = Number(values.runs)
if (!Number.isInteger(runs) || runs < 1) throw new Error('--runs takes a whole number of at least 1')
if (values.only && !sections.some((section) => section === values.only))
  throw new Error(`--only takes ${sections.join(', ')}`)
if (values.shape && !shapes.some(({ name }) => name === values.shape)) {
  throw new Error(`--shape takes ${shapes.map(({ name }) => name).join(', ')}`)
}
if (values.case && !cutoverCases.some(({ name }) => name === values.case)) {
  throw new Error(`--case takes ${cutoverCases.map(({ name }) => name).join(', ')}`)
}
const link = {
  roundTripMS: values.rtt === undefined ? undefined : Number(values.rtt),
  megabitsPerSecond: values.bandwidth === undefined ? undefined : Number(values.bandwidth),
  compressors: values.compressors,
}
if (link.roundTripMS !== undefined && !(link.roundTripMS >= 0))
  throw new Error('--rtt takes a number of milliseconds of at least 0')
if (link.megabitsPerSecond !== undefined && !(link.megabitsPerSecond > 0))
  throw new Error('--bandwidth takes a number of megabits per second above 0')
const isLinked = link.roundTripMS !== undefined || link.megabitsPerSecond !== undefined

if (link.compressors !== undefined && !isLinked) throw new Error('--compressors needs --rtt or --bandwidth')
if (isLinked && values.only && ![...linkedSections].some((section) => section === values.only))
  throw new Error(`with --rtt or --bandwidth, --only takes ${[...linkedSections].join(', ')}`)

const scale = values.quick ? 0.1 : Number(values.scale)
if (!(scale > 0 && scale <= 1)) throw new Error('--scale takes a number above 0 and at most 1')
const cacheSizeGB = Number(values.cache)
if (!(cacheSizeGB >= 0.25)) throw new Error('--cache takes a number of GB of at least 0.25')
const shardCount = Number(values.shards)
if (!Number.isInteger(shardCount) || shardCount < 2) throw new Error('--shards takes a whole number of at least 2')
const levels = ([1, 2, 3, 4] as const).filter((level) => !values.level || String(level) === values.level)
if (levels.length === 0) throw new Error('--level takes a number from 1 to 4')
const options = {
  runs,
  scale,
  cacheSizeGB,
  link,
  shards: shardCount,
  profile: values.profile ? path.resolve(values.profile) : undefined,
}

interface Planned {
  section: Row['section']
  name: string
  /** Several results have their own names, and a column each. */
  run: () => Promise<Measured | (Measured & { name: string })[]>
}

function planned(): Planned[] {
  const copies = shapes
    .filter(({ name }) => !values.shape || name === values.shape)
    .map((shape) => ({ section: 'copy' as const, name: shape.title, run: () => benchCopy(shape, options) }))
  const burst = {
    section: 'burst' as const,
    name: 'inserts, updates, deletes 60/30/10',
    run: () => benchBurst(options, 'mixed'),
  }
  const hot = {
    section: 'hot' as const,
    name: '95 % updates of 1,000 documents',
    run: () => benchBurst(options, 'hot'),
  }
  const lags = [false, true].map((on) => ({
    section: 'lag' as const,
    name: `sentinel under 2,000 ops/s, verification ${on ? 'on' : 'off'}`,
    run: () => benchLag(options, on),
  }))
  const [first] = shapes
  const verify = { section: 'verify' as const, name: first.title, run: () => benchVerify(first, options) }
  const chosen = shapes.find(({ name }) => name === values.shape) ?? first
  const verification = {
    section: 'verification' as const,
    name: chosen.title,
    run: () => benchVerification(chosen, options),
  }
  const cutovers = cutoverCases
    .filter(({ name, onlyWhenNamed }) => (values.case ? name === values.case : !onlyWhenNamed))
    .map((what) => ({
      section: 'cutover' as const,
      name: what.title,
      run: () => benchCutover(what, options),
    }))
  const memory = { section: 'memory' as const, name: first.title, run: () => benchMemory(first, options) }
  const collections = {
    section: 'collections' as const,
    name: '100 documents each',
    run: () => benchManyCollections(options),
  }
  const empty = { section: 'empty' as const, name: 'in one database', run: () => benchManyEmpty(options) }
  const indexes = { section: 'indexes' as const, name: '20 collections', run: () => benchManyIndexes(options) }
  const builds = { section: 'builds' as const, name: '20 indexes', run: () => benchBuildIndexes(options) }
  const instances = { section: 'instances' as const, name: first.title, run: () => benchInstances(first, options) }
  const ddl = { section: 'ddl' as const, name: '100 createIndexes', run: () => benchDdl(options) }
  const shared = {
    section: 'shared' as const,
    name: 'first pass, one collection, 1 KB',
    run: () => benchSharedVerification(options),
  }
  const secondaries = {
    section: 'secondaries' as const,
    name: 'source of three members, 1 KB',
    run: () => benchSecondaryReads(options),
  }
  const dashboards = { section: 'dashboards' as const, name: first.title, run: () => benchDashboards(first, options) }
  const converge = { section: 'converge' as const, name: first.title, run: () => benchConverge(first, options) }
  const start = { section: 'start' as const, name: 'one collection', run: () => benchStart(options) }
  const neighbours = levels.map((level) => ({
    section: 'neighbours' as const,
    name: `loadLevel ${level}`,
    run: () => benchNeighbours(level, options),
  }))
  const directions = { section: 'directions' as const, name: 'transactions', run: () => benchDirections(options) }
  const wanted = values.only ?? (values.case ? 'cutover' : values.shape ? 'copy' : undefined)
  return [
    ...copies,
    burst,
    hot,
    ...lags,
    verify,
    verification,
    ...cutovers,
    memory,
    collections,
    ...(wanted === 'empty' ? [empty] : []),
    indexes,
    builds,
    instances,
    ddl,
    shared,
    secondaries,
    dashboards,
    converge,
    start,
    ...neighbours,
    directions,
    ...shardedCases(options),
  ].filter(({ section }) => (!wanted || section === wanted) && (!isLinked || linkedSections.has(section)))
}

process.stderr.write('building\n')
await promisify(execFile)('npm', ['run', 'build'], { cwd: repositoryRoot })
// The child processes of a measurement run as plain JavaScript, because a loader would add to their CPU and memory.
await promisify(execFile)('npx', ['tsc', '-p', 'bench/tsconfig.json'], { cwd: repositoryRoot })

const machine = await machineFacts(options)
process.stdout.write(machineLines(machine))
if (isLinked) {
  const rate = link.megabitsPerSecond === undefined ? 'unlimited bandwidth' : `${link.megabitsPerSecond} Mbit/s`
  process.stdout.write(
    `Link to each cluster: round trip ${link.roundTripMS ?? 0} ms, ${rate}, compressors ${link.compressors ?? 'none'}.\n`,
  )
}
const rows: Row[] = []
for (const { section, name, run } of planned()) {
  process.stderr.write(`${section}: ${name}\n`)
  try {
    for (const one of [await run()].flat()) rows.push({ section, name, ...one })
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
    rows.push({ section, name, figures: {}, misses: ['FAILED, see above'] })
    process.exitCode = 1
  }
}
process.stdout.write(tables(rows))
if (values.json) {
  const what = { quick: values.quick, runs, link, machine, rows }
  writeFileSync(values.json, `${JSON.stringify(what, null, 2)}\n`)
}
