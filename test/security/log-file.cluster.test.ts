import { readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, vi } from 'vitest'
import { commit } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { patience } from '../support/reversible-pair.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** docs/logs.md: problems with the log file do not affect the sync. */

const pair = pairedSets()
const withLog = (folder: string) =>
  startTandem({ cluster0: pair.source.uri, cluster1: pair.destination.uri, extraArgs: ['--logPath', folder] })

it('SIGUSR1 begins a new log file and does not start Node’s inspector', async () => {
  const folder = path.join(pair.source.folder, 'rotated')
  const file = path.join(folder, 'tandem.log')
  await using tandem = await withLog(folder)
  await vi.waitFor(() => tandem.progress(), patience)
  process.kill(tandem.pid, 'SIGUSR1')
  await vi.waitFor(() => {
    expect(readFileSync(`${file}.1`, 'utf8')).toContain('"listening"')
    expect(readFileSync(file, 'utf8').split('\n')[0]).toContain('"log rotated"')
  }, patience)
  expect(tandem.output()).not.toMatch(/Debugger listening/)
  await tandem.progress()
})

it('a migration continues and commits while the disk of the log is full, and SIGHUP opens the log again', async () => {
  await pair.sourceClient
    .db('app')
    .collection('things')
    .insertMany([{ a: 1 }, { a: 2 }])
  const folder = path.join(pair.source.folder, 'log')
  const file = path.join(folder, 'tandem.log')
  await using tandem = await withLog(folder)
  await vi.waitFor(() => tandem.progress(), patience)
  renameSync(file, `${file}-before`)
  symlinkSync('/dev/full', file)
  process.kill(tandem.pid, 'SIGHUP')
  await vi.waitFor(() => expect(tandem.output()).toMatch(/the log cannot be written \(ENOSPC\)/), patience)
  await startSync(tandem)
  await commit(tandem)
  rmSync(file)
  process.kill(tandem.pid, 'SIGHUP')
  const messages = await vi.waitFor(() => {
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
    const read = lines.map((line) => (JSON.parse(line) as { message: string }).message)
    expect(read).toContain('log lines lost')
    return read
  }, patience)
  expect(messages.slice(0, 2)).toEqual(['log reopened', 'log lines lost'])
  expect(tandem.output().match(/cannot be written/g)).toHaveLength(1)
})

it('a log file that cannot be opened is reported on standard error, and the process does not start', async () => {
  const inTheWay = path.join(pair.source.folder, 'in-the-way')
  writeFileSync(inTheWay, '')
  await expect(withLog(inTheWay)).rejects.toThrow(
    /exited with 2 before it listened[\s\S]*error: --logPath: cannot write .*tandem\.log: (EEXIST|ENOTDIR)/,
  )
})
