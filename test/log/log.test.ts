import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { createLog } from '../../src/log/log.ts'
import { prettyLine } from '../../src/log/log-line.ts'
import type { LogLevel } from '../../src/log/log-options.ts'
import { LogFile } from '../../src/log/log-writer.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tandem-log-'))
  file = path.join(folder, 'tandem.log')
  return () => rmSync(folder, { recursive: true, force: true })
})

const noTerminal = { isTerminal: false, inColour: false }
const opened = (logPath = folder, logLevel: LogLevel = 'info') =>
  createLog({ logPath, logMaxMB: 1, logFiles: 3, logLevel, mongosyncID: 'one' }, noTerminal)
const linesOf = (text: string): Record<string, unknown>[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)

describe('a line', () => {
  test('has time, level, mongosyncID and message, and no credentials where it contains a connection string', () => {
    const { journal } = opened(path.join(folder, 'made', 'for it'))
    const uri = 'mongodb://root:hunter2@h/?password=hunter2'
    journal('progress', { error: `cannot reach ${uri}`, deep: { in: [uri] }, kept: 'a@b' })
    const text = readFileSync(path.join(folder, 'made', 'for it', 'tandem.log'), 'utf8')
    expect(linesOf(text)).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
        mongosyncID: 'one',
        message: 'progress',
        error: expect.stringMatching(/^cannot reach mongodb:\/\/\*\*\*@h/),
        deep: { in: [expect.stringContaining('***')] },
        kept: 'a@b',
      },
    ])
    expect(text).not.toContain('hunter2')
  })

  test('that records a command and its caller is written at every verbosity', () => {
    const { journal } = opened(folder, 'fatal')
    const call = {
      id: 'x',
      command: 'pause',
      remoteAddress: null,
      token: 'none',
      outcome: 'accepted',
      error: null,
    } as const
    journal('audit', { received: 'now', ...call })
    journal('failed', { error: 'InternalError', errorDescription: 'x', docs: '', during: 'idle' })
    expect(linesOf(readFileSync(file, 'utf8'))).toMatchObject([{ level: 'info', message: 'audit', command: 'pause' }])
  })

  test('is readable on a terminal, and shows no control characters', () => {
    const json = {
      level: 'warn',
      time: '2026-01-31T09:00:01.234Z',
      mongosyncID: 'one',
      state: 'X\u001b[2J',
      message: 'state',
    }
    const shown = prettyLine(JSON.stringify({ ...json, versions: ['6.0'] }), false)
    expect(shown).toBe('09:00:01.234 WARN  state: state=X\\u001b[2J versions=["6.0"]\n')
    expect(prettyLine(JSON.stringify(json), true)).toBe(
      '\u001b[33m09:00:01.234 WARN  state: state=X\\u001b[2J\u001b[0m\n',
    )
  })
})

describe('the file', () => {
  const names = () => readdirSync(folder).sort()

  test('is rotated before it is too large, and the oldest file is removed', () => {
    const log = new LogFile({ path: file, bytesMax: 100, files: 3 })
    for (let line = 0; line < 10; line += 1) log.write(`${String(line).padEnd(39)}\n`)
    expect(names()).toEqual(['tandem.log', 'tandem.log.1', 'tandem.log.2'])
    const read = names().map((name) => readFileSync(path.join(folder, name), 'utf8').replaceAll(/\s+/g, ' ').trim())
    expect(read).toEqual(['8 9', '6 7', '4 5'])
  })

  test('is continued by the next process, and a line that is too large gets its own file', () => {
    writeFileSync(file, `${'x'.repeat(89)}\n`)
    const log = new LogFile({ path: file, bytesMax: 100, files: 2 })
    log.write('short\n')
    log.write(`${'y'.repeat(200)}\n`)
    log.write('last\n')
    expect(readFileSync(file, 'utf8')).toBe('last\n')
    expect(readFileSync(`${file}.1`, 'utf8')).toBe(`${'y'.repeat(200)}\n`)
  })

  test('is emptied and continued if only one file is kept', () => {
    const log = new LogFile({ path: file, bytesMax: 10, files: 1 })
    for (const line of ['one one\n', 'two two\n']) log.write(line)
    expect([names(), readFileSync(file, 'utf8')]).toEqual([['tandem.log'], 'two two\n'])
  })

  test('can be truncated by other programs, or moved by them and then opened again', () => {
    const log = new LogFile({ path: file, bytesMax: 100, files: 3 })
    log.write(`${'a'.repeat(79)}\n`)
    truncateSync(file)
    log.write(`${'b'.repeat(79)}\n`)
    expect(names()).toEqual(['tandem.log'])
    expect(statSync(file).size).toBe(80)
    renameSync(file, `${file}-today`)
    log.reopen()
    log.write('c\n')
    expect(readFileSync(file, 'utf8')).toBe('c\n')
  })

  test('is rotated immediately on request, unless it is empty, and continues as before', () => {
    const log = new LogFile({ path: file, bytesMax: 100, files: 3 })
    log.rotate()
    expect(names()).toEqual(['tandem.log'])
    log.write('one\n')
    log.rotate()
    log.write('two\n')
    expect([readFileSync(`${file}.1`, 'utf8'), readFileSync(file, 'utf8')]).toEqual(['one\n', 'two\n'])
    for (const text of ['x', 'y']) log.write(`${text.repeat(59)}\n`)
    expect(names()).toEqual(['tandem.log', 'tandem.log.1', 'tandem.log.2'])
  })

  test('is accessible only to its owner and group', () => {
    const before = process.umask(0)
    try {
      new LogFile({ path: file, bytesMax: 100, files: 3 }).write('one\n')
    } finally {
      process.umask(before)
    }
    expect(statSync(file).mode & 0o777).toBe(0o640)
  })

  // Root can write to any folder.
  test.skipIf(process.getuid?.() === 0)('grows if it cannot be rotated', () => {
    const log = new LogFile({ path: file, bytesMax: 10, files: 3 })
    log.write('12345678\n')
    chmodSync(folder, 0o500)
    for (const line of ['one\n', 'two\n']) log.write(line)
    chmodSync(folder, 0o700)
    expect(readFileSync(file, 'utf8')).toBe('12345678\none\ntwo\n')
  })
})

describe('a log that cannot be written', () => {
  test('is reported at startup with the name of the option', () => {
    const inTheWay = path.join(folder, 'file')
    writeFileSync(inTheWay, '')
    expect(() => opened(inTheWay)).toThrow(/^--logPath: cannot write .*tandem\.log: (EEXIST|ENOTDIR); give a directory/)
  })

  test.skipIf(!existsSync('/proc/self'))(
    'is reported at startup if the system does not allow the folder to be created',
    () => {
      expect(() => opened('/proc/nowhere')).toThrow(/^--logPath: cannot write .*ENOENT/)
    },
  )

  test.skipIf(!existsSync('/dev/full'))(
    'continues when the disk has space again, and reports how many lines were lost',
    () => {
      const { journal, reopen } = opened()
      journal('notice', { notice: 'before' })
      rmSync(file)
      symlinkSync('/dev/full', file)
      reopen()
      for (let line = 0; line < 3; line += 1) journal('notice', { notice: 'lost: no space is left' })
      rmSync(file)
      reopen()
      journal('notice', { notice: 'after' })
      expect(linesOf(readFileSync(file, 'utf8'))).toMatchObject([
        { notice: 'after' },
        { message: 'log lines lost', lines: 3, level: 'warn' },
      ])
    },
  )
})
