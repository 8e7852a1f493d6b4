import { describe, expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'

/** These commands connect to both clusters themselves, without an instance. */

const uris = ['--cluster0', 'mongodb://a.test', '--cluster1', 'mongodb://b.test']

function refused(args: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(args, env)
  expect(parsed).toMatchObject({ kind: 'print', stream: 'stderr', exitCode: 2 })
  return parsed.kind === 'print' ? parsed.text : ''
}

describe('verify', () => {
  const verify = (...args: string[]) => {
    const parsed = parseCommandLine(['verify', ...args], {
      TANDEM_CLUSTER0: 'mongodb://a.test',
      TANDEM_CLUSTER1: 'mongodb://b.test',
    })
    if (parsed.kind !== 'verify') throw new Error(JSON.stringify(parsed))
    return parsed.options
  }

  test('has defaults, and its connection strings from the environment', () => {
    expect(verify()).toEqual({
      cluster0: 'mongodb://a.test',
      cluster1: 'mongodb://b.test',
      json: false,
      maxDifferences: 100,
      namespaces: [],
      excluded: [],
      renamed: [],
      skipTimeSeries: false,
      ignoreIndexes: false,
      ignoreHashedIndexes: false,
    })
  })

  test('takes every option', () => {
    const args = [
      '--json',
      '--maxDifferences',
      '5',
      '--ignoreIndexes',
      '--ignoreHashedIndexes',
      ...['--timeseries', 'skip', '--remap', 'd=f', '--remap', 'e=d'],
      '--namespace',
      'd',
      '--namespace',
      'e.c.x',
    ]
    const excluded = ['--excludeNamespace', 'd.y']
    expect(verify('--cluster0', 'mongodb://c', '--cluster1', 'mongodb://d', ...args, ...excluded)).toEqual({
      cluster0: 'mongodb://c',
      cluster1: 'mongodb://d',
      json: true,
      maxDifferences: 5,
      namespaces: [
        { database: 'd', collection: null },
        { database: 'e', collection: 'c.x' },
      ],
      excluded: [{ database: 'd', collection: 'y' }],
      renamed: [
        { from: 'd', to: 'f' },
        { from: 'e', to: 'd' },
      ],
      skipTimeSeries: true,
      ignoreIndexes: true,
      ignoreHashedIndexes: true,
    })
  })

  test.each([
    [['--maxDifferences', '-1'], /0 to 1000000/],
    [['--maxDifferences', '1e9'], /0 to 1000000/],
    [['--namespace', 'admin'], /not internal/],
    [['--namespace', '.c'], /not internal/],
    [['--excludeNamespace', 'local.c'], /not internal/],
    [['--remap', 'd.c=e'], /two databases or of two collections/],
    [['--port', '1'], /unknown option '--port'/],
    [['more'], /too many arguments/],
  ])('refuses %j', (args, message) => {
    expect(refused(['verify', ...uris, ...args])).toMatch(message)
  })

  test('names the missing connection string, and never repeats a connection string', () => {
    expect(refused(['verify', '--cluster0', 'mongodb://a'])).toMatch(/cluster1: is required/)
    const texts = [
      refused(['verify', '--cluster0', 'mongodb://root:hunter2@a/?w=1', '--cluster1', 'mongodb://b']),
      refused(['verify', ...uris, 'mongodb://root:hunter2@a']),
      refused(['verify', ...uris, '--namespace', 'local.mongodb://root:hunter2@a']),
    ]
    expect(texts[0]).toMatch(/write concern must be majority/)
    for (const text of texts) expect(text).not.toMatch(/root|hunter2/)
  })
})

describe('rehearse', () => {
  test('has defaults, and takes every option', () => {
    const defaults = { prefix: 'tandem_rehearsal', minutes: 10, megabytes: 64 }
    const rest = { blockWrites: false, reverse: false, stepDowns: false, seed: null, json: false, report: null }
    const clusters = { cluster0: 'mongodb://c', cluster1: 'mongodb://d' }
    const given = ['--cluster0', 'mongodb://c', '--cluster1', 'mongodb://d']
    expect(parseCommandLine(['rehearse', ...given], {})).toEqual({
      kind: 'rehearse',
      options: { ...clusters, ...defaults, ...rest },
    })
    const all = ['--prefix', 'x', '--minutes', '0.5', '--megabytes', '1', '--blockWrites', '--seed', '7', '--json']
    const others = ['--reverse', '--stepDowns', '--report', 'r.md']
    expect(parseCommandLine(['rehearse', ...given, ...all, ...others], {})).toEqual({
      kind: 'rehearse',
      options: {
        ...clusters,
        prefix: 'x',
        minutes: 0.5,
        megabytes: 1,
        blockWrites: true,
        reverse: true,
        stepDowns: true,
        seed: 7,
        json: true,
        report: 'r.md',
      },
    })
  })

  test.each([
    [['--prefix', 'a.b'], /begin with a letter/],
    [['--prefix', '1a'], /begin with a letter/],
    [['--prefix', 'mongosync_internal_x'], /not begin like an internal database/],
    [['--minutes', '0'], /a number above 0/],
    [['--minutes', '-1'], /a number above 0/],
    [['--megabytes', '1.5'], /an integer from 1 to/],
    [['--seed', 'x'], /an integer from 0 to/],
    [['more'], /too many arguments/],
  ])('refuses %j', (args, message) => {
    expect(refused(['rehearse', ...uris, ...args])).toMatch(message)
  })
})

describe('inventory', () => {
  const env = { TANDEM_CLUSTER0: 'mongodb://a.test', TANDEM_CLUSTER1: 'mongodb://b.test' }

  test('has defaults, and its connection strings from the environment', () => {
    expect(parseCommandLine(['inventory'], env)).toEqual({
      kind: 'inventory',
      options: { cluster0: 'mongodb://a.test', cluster1: 'mongodb://b.test', json: false },
    })
  })

  test('takes every option', () => {
    const args = ['--cluster0', 'mongodb://c', '--cluster1', 'mongodb://d', '--json']
    expect(parseCommandLine(['inventory', ...args], env)).toEqual({
      kind: 'inventory',
      options: { cluster0: 'mongodb://c', cluster1: 'mongodb://d', json: true },
    })
  })

  test.each([
    [['--namespace', 'd'], /unknown option '--namespace'/],
    [['more'], /too many arguments/],
  ])('refuses %j', (args, message) => {
    expect(refused(['inventory', ...uris, ...args])).toMatch(message)
  })

  test('names the missing connection string, and never repeats a connection string', () => {
    expect(refused(['inventory', '--cluster0', 'mongodb://a'])).toMatch(/cluster1: is required/)
    const texts = [
      refused(['inventory', '--cluster0', 'mongodb://root:hunter2@a/?w=1', '--cluster1', 'mongodb://b']),
      refused(['inventory', ...uris, 'mongodb://root:hunter2@a']),
    ]
    expect(texts[0]).toMatch(/write concern must be majority/)
    for (const text of texts) expect(text).not.toMatch(/root|hunter2/)
  })
})

describe('clean', () => {
  const env = { TANDEM_CLUSTER0: 'mongodb://a.test', TANDEM_CLUSTER1: 'mongodb://b.test' }
  const defaults = {
    cluster0: 'mongodb://a.test',
    cluster1: 'mongodb://b.test',
    redis: null,
    redisTls: {},
    syncName: null,
    unblock: [],
    yes: false,
    dryRun: false,
    json: false,
  }

  test('changes nothing by default, and takes its addresses from the environment', () => {
    expect(parseCommandLine(['clean'], env)).toEqual({ kind: 'clean', options: defaults })
    expect(parseCommandLine(['clean'], { ...env, TANDEM_SYNC_NAME: 'two' })).toEqual({
      kind: 'clean',
      options: { ...defaults, syncName: 'two' },
    })
    expect(parseCommandLine(['clean'], { ...env, TANDEM_SYNC_NAME: 'a.b' })).toMatchObject({
      kind: 'print',
      exitCode: 2,
    })
    expect(parseCommandLine(['clean'], { ...env, TANDEM_REDIS: 'redis://r' })).toEqual({
      kind: 'clean',
      options: { ...defaults, redis: 'redis://r' },
    })
  })

  test('takes every option', () => {
    const args = ['--unblock', 'cluster0', '--unblock', 'cluster1', '--json', '--redis', 'redis://r']
    const options = { ...defaults, unblock: ['cluster0', 'cluster1'], json: true, redis: 'redis://r' }
    expect(parseCommandLine(['clean', ...args, '--yes'], env)).toEqual({
      kind: 'clean',
      options: { ...options, yes: true },
    })
    expect(parseCommandLine(['clean', ...args, '--dry-run'], env)).toEqual({
      kind: 'clean',
      options: { ...options, dryRun: true },
    })
  })

  test.each([
    [['--unblock', 'both'], /'both' is invalid.*cluster0, cluster1/],
    [['--redis', 'r.test'], /redis: not the address/],
    [['more'], /too many arguments/],
  ])('refuses %j', (args, message) => {
    expect(refused(['clean', ...uris, ...args])).toMatch(message)
  })

  test('names the missing connection string', () => {
    expect(refused(['clean', '--cluster0', 'mongodb://a'])).toMatch(/cluster1: is required/)
  })
})
