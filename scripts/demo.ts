/**
 * Moves a public data set from one replica set to another while an application writes to it, kills tandem in the middle
 * of the copy, and proves at the end that both clusters hold the same bytes: `npm run demo`. It takes about a minute.
 */
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { MongoClient } from 'mongodb'
import type { Rehearsal } from '../src/domain/commit-request.ts'
import type { Progress } from '../src/domain/progress.ts'
import { type Comparison, compareClusters } from '../test/support/compare.ts'
import { repositoryRoot, resolveMongod } from '../test/support/mongo-binaries.ts'
import { type ReplicaSet, startReplicaSet } from '../test/support/replica-set.ts'
import { type DataSet, loadDataSet, readDataSet } from './demo/data-set.ts'
import { Instance } from './demo/instance.ts'
import { showCollections, showSummary, storedCopyBytes, type Timings } from './demo/report.ts'
import * as screen from './demo/screen.ts'
import { Writer } from './demo/writer.ts'

const { bold, count, dim, percent, red, seconds, shareOf } = screen

/** The share of the copy at which the process is killed. */
const killAt = 0.4
const followMS = 2_500
const pauseMS = 1_000
const copyTimeoutSeconds = 600
const commitTimeoutSeconds = 300
/** Megabytes. Large enough for the data set several times over, because the demo does not show an oplog that rolls over. */
const oplogSizeMB = 990

const startBody = {
  source: 'cluster0',
  destination: 'cluster1',
  enableUserWriteBlocking: 'sourceAndDestination',
}

/**
 * Close functions of everything that runs. They are called in reverse order at the end, also after a failure or a
 * signal.
 */
const opened: (() => Promise<unknown>)[] = []
const timings: Timings = { copy: 0, restart: 0, cutover: 0, commit: 0, compare: 0, all: 0 }
const startedAt = performance.now()
const failureReport = { log: () => '' }
let interrupted = false

for (const [signal, code] of Object.entries({ SIGINT: 130, SIGTERM: 143, SIGHUP: 129 })) {
  process.once(signal, async () => {
    interrupted = true
    screen.finishLine()
    screen.failed(`${signal}: stopping all processes`)
    await closeAll()
    process.exit(code)
  })
}
try {
  process.exitCode = (await demo()) ? 0 : 1
} catch (error) {
  if (!interrupted) showFailure(error)
  process.exitCode = 1
} finally {
  if (!interrupted) await closeAll()
}

interface DemoRun {
  readonly source: ReplicaSet
  readonly destination: ReplicaSet
  readonly instance: Instance
  readonly writer: Writer
  readonly onProgress: (progress: Progress) => void
}

async function demo(): Promise<boolean> {
  screen.print(bold('tandem: from one replica set to another, with an application writing and a kill -9 in between'))
  const [source, destination] = await startClusters()
  const data = await load(source)
  const instance = new Instance(source.uri, destination.uri)
  failureReport.log = () => instance.output
  const writer = new Writer(source.uri, data)
  opened.push(() => writer.close())
  let writerFailure: unknown = null
  writer.start((error) => {
    writerFailure = error
  })
  const onProgress = (progress: Progress) => {
    if (writerFailure) throw writerFailure
    screen.drawProgress(progress, instance.events, writer.rate)
  }
  const run = { source, destination, instance, writer, onProgress }
  await copy(run)
  await follow(run)
  await cutOver(run)
  const comparison = await compare(run)
  timings.all = performance.now() - startedAt
  screen.heading(7, 'Summary')
  await showSummary(destination.uri, { comparison, written: writer.counts, events: instance.events, timings })
  return comparison.equal
}

async function startClusters(): Promise<[ReplicaSet, ReplicaSet]> {
  screen.heading(1, 'Two clusters', 'replica sets of one member, on this machine')
  const { version } = await resolveMongod()
  const start = async (name: string) => {
    const cluster = await startReplicaSet({ name, oplogSizeMB, cacheSizeGB: 0.5 })
    opened.push(() => cluster.stop())
    return cluster
  }
  const clusters = await Promise.all([start('cluster0'), start('cluster1')])
  for (const { name, uri } of clusters) screen.step(`${name}  mongod ${version}  ${dim(uri)}`)
  return clusters
}

async function load(source: ReplicaSet): Promise<DataSet> {
  screen.heading(2, 'Public data', 'npm package vega-datasets; the flights are enlarged')
  const began = performance.now()
  const data = readDataSet()
  await loadDataSet(source.uri, data, (done, total) =>
    screen.redraw('loading', `${count(done)} of ${count(total)} documents`),
  )
  screen.finishLine()
  screen.step(`loaded into cluster0 in ${seconds(performance.now() - began)}`)
  await showCollections(source.uri)
  return data
}

async function copy({ destination, instance, onProgress }: DemoRun): Promise<void> {
  screen.heading(3, 'Copy', 'while the application writes')
  await instance.start()
  opened.push(() => instance.stop())
  screen.step(`npx tandem --cluster0 … --cluster1 …   ${dim(`pid ${instance.pid}, ${instance.url}`)}`)
  await instance.until(({ state }) => state === 'IDLE', { what: 'IDLE', timeoutSeconds: 30, onProgress: () => {} })
  const began = performance.now()
  await instance.command('start', startBody)
  screen.step(`POST /api/v1/start  ${dim(JSON.stringify(startBody))}`)
  const timeoutSeconds = copyTimeoutSeconds
  const progressAtKill = await instance.until((progress) => shareOf(progress) >= killAt, {
    what: 'copying',
    timeoutSeconds,
    onProgress,
  })
  await killAndRestart(destination, instance, progressAtKill)
  await instance.until(({ canCommit }) => canCommit, { what: 'ready to commit', timeoutSeconds, onProgress })
  timings.copy = performance.now() - began
  screen.finishLine()
  screen.step(`the copy is complete ${seconds(timings.copy)} after start`)
}

async function killAndRestart(destination: ReplicaSet, instance: Instance, progressAtKill: Progress): Promise<void> {
  const { pid } = instance
  const killedAt = performance.now()
  await instance.kill9()
  screen.finishLine()
  screen.failed(`kill -9 ${pid} at ${percent(shareOf(progressAtKill))} of the copy; the application continues to write`)
  const stored = await storedCopyBytes(destination.uri)
  await instance.start()
  const resumed = ({ canCommit, collectionCopy }: Progress) =>
    canCommit || (collectionCopy?.estimatedCopiedBytes ?? 0) > stored
  const progress = await instance.until(resumed, {
    what: 'copying again',
    timeoutSeconds: 30,
    onProgress: ({ state }) => screen.redraw('restarting', `${state}, ${seconds(performance.now() - killedAt)}`),
  })
  timings.restart = performance.now() - killedAt
  screen.finishLine()
  const from = stored / (progressAtKill.collectionCopy?.estimatedTotalBytes ?? 1)
  screen.step(
    progress.canCommit
      ? `restarted as ${instance.pid}: the copy was already complete, ${seconds(timings.restart)} after the kill`
      : `restarted as ${instance.pid}: the copy resumes automatically at ${percent(from)}, ${seconds(timings.restart)} after the kill`,
  )
}

async function follow({ instance, writer, onProgress }: DemoRun): Promise<void> {
  screen.heading(4, 'Follow', 'every change, as it happens')
  const watch = async (milliseconds: number) => {
    const until = performance.now() + milliseconds
    await instance.until(() => performance.now() >= until, {
      what: 'finished with this interval',
      timeoutSeconds: 60,
      onProgress,
    })
  }
  await watch(followMS)
  await writer.changeDefinitions()
  screen.note(
    'on the source: one index created and one dropped; collections created, renamed and dropped; a view changed',
  )
  await watch(pauseMS)
  await instance.command('pause')
  screen.note('POST /api/v1/pause')
  await watch(pauseMS)
  await instance.command('resume')
  screen.note('POST /api/v1/resume')
  await watch(followMS)
  screen.finishLine()
}

async function cutOver({ instance, writer, onProgress }: DemoRun): Promise<void> {
  screen.heading(5, 'Cut over')
  await writer.stop()
  const { pid } = instance
  screen.step(`the application has stopped writing, after ${count(writer.operations)} operations`)
  await rehearse(instance, onProgress)
  const stopped = performance.now()
  await instance.command('commit')
  screen.step('POST /api/v1/commit')
  const timeoutSeconds = commitTimeoutSeconds
  await instance.until(({ canWrite }) => canWrite === true, { what: 'writable', timeoutSeconds, onProgress })
  timings.cutover = performance.now() - stopped
  await instance.until(({ state }) => state === 'COMMITTED', { what: 'COMMITTED', timeoutSeconds, onProgress })
  timings.commit = performance.now() - stopped
  screen.finishLine()
  screen.step(`canWrite after ${seconds(timings.cutover)}, COMMITTED after ${seconds(timings.commit)}`)
  const ending = performance.now()
  const code = await instance.stop()
  const after = `after ${seconds(performance.now() - ending)}`
  if (code === 0) screen.step(`SIGTERM: tandem ${pid} exited ${after}`)
  else screen.failed(red(`SIGTERM: tandem ${pid} did not exit cleanly (exit code ${code}, ${after})`))
}

/** Rehearses the commit with the command-line program, as an operator does days before the cutover. */
async function rehearse(instance: Instance, onProgress: DemoRun['onProgress']): Promise<void> {
  const entry = path.join(repositoryRoot, 'dist/main.js')
  await promisify(execFile)(process.execPath, [entry, 'commit', '--dry-run', '--url', instance.url])
  screen.step('tandem commit --dry-run')
  const timeoutSeconds = commitTimeoutSeconds
  const rehearsed = ({ state, lastRehearsal }: Progress): boolean => state === 'RUNNING' && lastRehearsal !== undefined
  const { lastRehearsal } = await instance.until(rehearsed, { what: 'rehearsed', timeoutSeconds, onProgress })
  screen.finishLine()
  const { steps, outageSeconds, verdict } = lastRehearsal as Rehearsal
  const parts = steps.map((one) => `${one.step} ${one.seconds.toFixed(2)}`).join(', ')
  screen.step(`the commit would stop writes for ${outageSeconds.toFixed(2)} s (${parts}); both clusters: ${verdict}`)
  await instance.until(({ canCommit }) => canCommit, { what: 'ready to commit again', timeoutSeconds, onProgress })
}

async function compare({ source, destination }: DemoRun): Promise<Comparison> {
  screen.heading(
    6,
    'Compare',
    'the bytes of every document, every option and every index, with code that is independent of tandem',
  )
  const began = performance.now()
  const comparison = await compareClusters(source.uri, destination.uri)
  timings.compare = performance.now() - began
  for (const difference of comparison.differences) screen.failed(red(difference))
  if (comparison.equal) screen.step(`equal, after ${seconds(timings.compare)}`)
  await checkWrites(source, destination)
  return comparison
}

/** Checks the handover as an application observes it: the old cluster rejects writes, and the new one accepts them. */
async function checkWrites(source: ReplicaSet, destination: ReplicaSet): Promise<void> {
  const insert = async (uri: string) => {
    await using client = new MongoClient(uri)
    await client.db('travel').collection('bookings').insertOne({ number: 'TD0000001', madeAt: new Date() })
  }
  const refusal = await insert(source.uri).then(
    () => null,
    (error: Error) => error.message,
  )
  if (refusal === null) throw new Error('the source accepts writes after a commit with sourceAndDestination')
  await insert(destination.uri)
  screen.step(`cluster0 rejects a write (${refusal}), cluster1 accepts one`)
}

function showFailure(error: unknown): void {
  screen.finishLine()
  screen.failed(red(error instanceof Error ? (error.stack ?? error.message) : String(error)))
  const log = failureReport.log()
  if (log !== '') screen.print(dim(`\ntandem's log:\n${log}`))
}

async function closeAll(): Promise<void> {
  for (const close of opened.splice(0).reverse()) await close().catch(() => {})
}
