import { describe, expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'
import type { ServeCommandOptions } from '../../src/cli/serve-options.ts'

const uris = ['--cluster0', 'mongodb://a.test', '--cluster1', 'mongodb://b.test']

function serve(...args: string[]): ServeCommandOptions {
  const parsed = parseCommandLine([...uris, ...args], {})
  if (parsed.kind !== 'serve') throw new Error(JSON.stringify(parsed))
  return parsed.options
}

function refused(args: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(args, env)
  expect(parsed).toMatchObject({ kind: 'print', stream: 'stderr', exitCode: 2 })
  return parsed.kind === 'print' ? parsed.text : ''
}

describe('running an instance', () => {
  test('has the defaults of mongosync', () => {
    expect(serve()).toEqual({
      cluster0: 'mongodb://a.test',
      cluster1: 'mongodb://b.test',
      redis: null,
      redisTls: {},
      port: 27182,
      bind: '127.0.0.1',
      tls: null,
      tokens: null,
      tokenOptions: {},
      id: 'coordinator',
      syncName: null,
      loadLevel: 3,
      copyReadPreference: 'primary',
      shardNames: [],
      logPath: null,
      logMaxMB: 100,
      logFiles: 10,
      logLevel: 'info',
      exitOnFailure: false,
      notices: [],
    })
  })

  test('takes every option', () => {
    expect(
      serve(
        '--port',
        '0',
        '--id=one',
        '--loadLevel',
        '4',
        '--logPath',
        '/logs',
        '--verbosity',
        'WARN',
        '--exitOnFailure',
      ),
    ).toMatchObject({ port: 0, id: 'one', loadLevel: 4, logPath: '/logs', logLevel: 'warn', exitOnFailure: true })
  })

  test.each([
    ['TRACE', 'trace'],
    ['info', 'info'],
    ['ERROR', 'error'],
    ['FATAL', 'fatal'],
    ['PANIC', 'fatal'],
  ])('verbosity %s is %s', (given, level) => {
    expect(serve('--verbosity', given).logLevel).toBe(level)
  })

  test('takes the connection strings from options, or else from the environment', () => {
    const env = { TANDEM_CLUSTER0: 'mongodb://env0', TANDEM_CLUSTER1: 'mongodb://env1' }
    expect(parseCommandLine([], env)).toMatchObject({
      kind: 'serve',
      options: { cluster0: 'mongodb://env0', cluster1: 'mongodb://env1' },
    })
    expect(parseCommandLine(['--cluster1', 'mongodb://b'], env)).toMatchObject({
      options: { cluster0: 'mongodb://env0', cluster1: 'mongodb://b' },
    })
  })

  test('takes the address of Redis from options, or else from the environment', () => {
    expect(serve('--redis', 'redis://r.test').redis).toBe('redis://r.test')
    const env = {
      TANDEM_CLUSTER0: 'mongodb://a',
      TANDEM_CLUSTER1: 'mongodb://b',
      TANDEM_REDIS: 'rediss://:p@r.test:1/2',
    }
    expect(parseCommandLine([], env)).toMatchObject({ options: { redis: 'rediss://:p@r.test:1/2' } })
    expect(parseCommandLine(['--redis=redis://other'], env)).toMatchObject({ options: { redis: 'redis://other' } })
    expect(parseCommandLine([], { ...env, TANDEM_REDIS: '' })).toMatchObject({ options: { redis: null } })
  })

  test.each([
    ['', /redis: must not be empty/],
    ['r.test:6379', /redis: not the address of a Redis server; give redis:\/\/.* \(--redis or TANDEM_REDIS\)/],
    ['http://root:hunter2@r.test', /not the address of a Redis/],
    ['redis://root:hunter2@', /not the address of a Redis|host is missing/],
    ['redis:///1', /host is missing/],
    ['redis://root:hunter2@r.test:99999', /not the address of a Redis/],
    ['redis://root:hunter2@r.test/?password=hunter2', /options in the URL are not supported/],
    ['redis://root:hunter2@r.test/db', /only a database number/],
    ['redis://root:hunter2%@r.test', /percent-encoded/],
  ])('refuses the Redis %j without repeating it', (url, message) => {
    const texts = [refused([...uris, '--redis', url])]
    if (url !== '') texts.push(refused(uris, { TANDEM_REDIS: url }))
    for (const text of texts) {
      expect(text).toMatch(message)
      expect(text).not.toMatch(/root|hunter2|r\.test/)
    }
  })

  test('names the missing connection strings', () => {
    expect(refused([])).toMatch(
      /cluster0: is required; give --cluster0 URI or set TANDEM_CLUSTER0\n.*cluster1: is required/,
    )
    expect(refused(['--cluster0', 'mongodb://a'])).toBe(
      'error: cluster1: is required; give --cluster1 URI or set TANDEM_CLUSTER1\n',
    )
    expect(refused(['--cluster0', '', '--cluster1', 'mongodb://a'])).toMatch(/cluster0: is required/)
  })

  test('accepts options of mongosync that have no effect, and prints a notice for each', () => {
    const args = [
      '--acceptDisclaimer',
      '--disableTelemetry=true',
      '--metricsLoggingFilepath',
      '/m',
      '--disableMetricsLogging',
      ...['--createIndexesBatchSize', '4'],
      ...['--hotDocIDs', '{"db":"app"}', '--hotDocIDs', '{"db":"other"}'],
      '--enableCappedCollectionHandling',
    ]
    expect(serve(...args).notices).toEqual([
      '--acceptDisclaimer is ignored: tandem has no disclaimer',
      '--disableTelemetry is ignored: tandem sends no telemetry',
      '--metricsLoggingFilepath is ignored: tandem writes no metrics file',
      '--disableMetricsLogging is ignored: tandem writes no metrics file',
      '--createIndexesBatchSize is ignored: tandem builds all indexes of a collection with one command',
      '--hotDocIDs is ignored: tandem writes the current version of a changed document once, however often the document has changed',
      '--enableCappedCollectionHandling is ignored: tandem always syncs capped collections that the source creates',
    ])
  })

  test.each([
    [['--port', '65536'], /0 to 65535/],
    [['--port', 'http'], /0 to 65535/],
    [['--port', '1e3'], /0 to 65535/],
    [['--logMaxMB', '-1'], /0 to 1000000/],
    [['--logFiles', '0'], /1 to 1000/],
    [['--copyReadPreference', 'nearest'], /primary, secondaryPreferred/],
    [['--shardNames', 'rs0'], /pairs such as rs0=shardA.*"rs0" is not of the form/],
    [['--shardNames', 'rs0=a,rs0=b'], /the shard rs0 of cluster0 is named twice/],
    [['--shardNames', 'rs0=a,rs1=a'], /the shard a of cluster1 is named twice/],
    [['--loadLevel', '0'], /1 to 4/],
    [['--loadLevel', '2.5'], /1 to 4/],
    [['--verbosity', 'loud'], /TRACE, DEBUG, INFO, WARN, ERROR, FATAL, PANIC/],
    [['--id', ''], /not be empty/],
    [['--syncName', ''], /1 to 20 characters: letters, digits, - and _/],
    [['--syncName', 'a.b'], /1 to 20 characters/],
    [['--syncName', 'x'.repeat(21)], /1 to 20 characters/],
    [['--id', '$x'], /begin with a letter or digit/],
    [['--id', 'a b'], /letters and digits, only/],
    [['--id', 'a\n'], /letters and digits, only/],
    [['--id', 'x'.repeat(257)], /at most 256 characters/],
    [['--unknown'], /unknown option '--unknown'/],
    [['unknown'], /too many arguments/],
    [['--port'], /argument missing/],
  ])('refuses %j', (args, message) => {
    expect(refused([...uris, ...args])).toMatch(message)
  })

  test.each([
    [['comit', '--yes'], "error: there is no command 'comit'; did you mean commit?\n"],
    [['synchronise'], "error: there is no command 'synchronise'; tandem help lists the commands\n"],
    [['mongodb://root:hunter2@db.test', 'start'], /^error: there is no command 'mongodb:\/\/\*\*\*@db\.test'; /],
  ])('an unknown command is refused by name: %j', (args, message) => {
    expect(parseCommandLine(args, {})).toEqual({
      kind: 'print',
      stream: 'stderr',
      text: typeof message === 'string' ? message : expect.stringMatching(message),
      exitCode: 2,
    })
  })

  test('refuses URI options as mongosync does, and never repeats a connection string', () => {
    const secret = 'mongodb://root:hunter2@db.test/?w=1&socketTimeoutMS=5'
    const texts = [
      refused(['--cluster0', secret, '--cluster1', 'mongodb://a']),
      refused([], { TANDEM_CLUSTER0: secret, TANDEM_CLUSTER1: 'mongodb://a' }),
      refused([...uris, secret]),
      refused([`--cluster=${secret}`]),
      refused(['--port', secret]),
      refused(['start', '--url', 'http://root:hunter2@db.test']),
    ]
    expect(texts[0]).toMatch(/cluster0: Invalid URI option, write concern must be majority/)
    expect(texts[0]).toMatch(/cluster0: Invalid URI option, socketTimeoutMS/)
    for (const text of texts) expect(text).not.toMatch(/root|hunter2/)
  })
})

describe('help and version', () => {
  test.each(['-v', '--version'])('%s prints to standard output', (flag) => {
    expect(parseCommandLine([flag], {}, '1.2.3')).toEqual({
      kind: 'print',
      stream: 'stdout',
      text: '1.2.3\n',
      exitCode: 0,
    })
  })

  test.each([
    ['-h'],
    ['--help'],
    ['start', '-h'],
    ['progress', '--help'],
    ['verify', '-h'],
    ['inventory', '-h'],
    ['rehearse', '-h'],
    ['clean', '-h'],
    ['health', '-h'],
  ])('%s %s prints to standard output', (...args) => {
    const parsed = parseCommandLine(args, {})
    expect(parsed).toMatchObject({ kind: 'print', stream: 'stdout', exitCode: 0 })
    expect(parsed.kind === 'print' && parsed.text).toMatch(/^Usage: tandem/)
  })
})

test.each(['', 'start', 'verify', 'inventory', 'rehearse', 'clean', 'health', 'completion', 'help', 'config'])(
  'help %s prints the text of --help',
  (command) => {
    const words = command === '' ? [] : [command]
    const parsed = parseCommandLine(['help', ...words], {}, '1.2.3')
    expect(parsed).toEqual(parseCommandLine([...words, '--help'], {}, '1.2.3'))
    expect(parsed).toMatchObject({ kind: 'print', stream: 'stdout', exitCode: 0 })
  },
)

test('help of an unknown command names the commands', () => {
  expect(refused(['help', 'sync'])).toMatch(/'sync'.*Allowed choices are config, start, .*help/)
})

describe('client commands', () => {
  const request = (...args: string[]) => {
    const parsed = parseCommandLine(args, {})
    if (parsed.kind !== 'client') throw new Error(JSON.stringify(parsed))
    return parsed.request
  }

  test('commit and reverse ask for a confirmation; a rehearsal and a command with --yes do not', () => {
    for (const command of ['commit', 'reverse'] as const) {
      expect(request(command)).toEqual({
        command,
        urls: ['http://localhost:27182'],
        body: { inline: {} },
        confirms: true,
      })
      for (const yes of ['--yes', '-y']) expect(request(command, yes)).toMatchObject({ confirms: false })
    }
    expect(request('commit', '--dry-run')).toMatchObject({ confirms: false })
    expect(request('abort').confirms).toBeUndefined()
  })

  test.each(['progress', 'instances', 'limits', 'pause', 'resume', 'abort'] as const)(
    '%s goes to the local instance by default',
    (command) => {
      expect(request(command)).toEqual({ command, urls: ['http://localhost:27182'], body: { inline: {} } })
    },
  )

  test('commit sends only the given options', () => {
    expect(request('commit', '--dry-run', '--max-seconds', '10').body).toEqual({
      inline: { dryRun: true, maxSeconds: 10 },
    })
    // The instance reports the invalid value.
    expect(request('commit', '--max-seconds', 'soon').body).toEqual({ inline: { maxSeconds: 'soon' } })
    expect(request('resync', '--namespace', 'app.a.b', 'app.c', '--namespace', 'x').body).toEqual({
      inline: {
        namespaces: [{ database: 'app', collection: 'a.b' }, { database: 'app', collection: 'c' }, { database: 'x' }],
      },
    })
  })

  test('filter sends only the given options, and is refused without a filter, so that it does not remove the filter by mistake', () => {
    const excluded = [{ database: 'shop', collections: ['log'] }]
    expect(request('filter', '--excludeNamespaces', JSON.stringify(excluded), '--dropExcluded').body).toEqual({
      inline: { excludeNamespaces: excluded, dropExcluded: true },
    })
    expect(request('filter', '--body', '{}').body).toEqual({ inline: {} })
    expect(request('filter', '--body', '@filter.json').body).toEqual({ file: 'filter.json' })
    for (const wrong of [[], ['--dropExcluded'], ['--includeNamespaces', 'shop'], ['--body', '{}', '--dropExcluded']]) {
      expect(parseCommandLine(['filter', ...wrong], {})).toMatchObject({ kind: 'print', stream: 'stderr', exitCode: 2 })
    }
  })

  test('limit sends only the given options', () => {
    expect(request('limit', '--bytesPerSecond', '5000000', '--readConcurrency', 'none').body).toEqual({
      inline: { bytesPerSecond: 5_000_000, readConcurrency: null },
    })
    // The instance reports the invalid value.
    expect(request('limit', '--writeConcurrency', 'many').body).toEqual({ inline: { writeConcurrency: 'many' } })
    expect(request('limit').body).toEqual({ inline: {} })
  })

  test('--url may be repeated', () => {
    expect(request('commit', '--url', 'http://a:1/', '--url', 'https://b/base/').urls).toEqual([
      'http://a:1',
      'https://b/base',
    ])
  })

  test('--limit of mismatches and audit is a parameter of the query', () => {
    for (const command of ['mismatches', 'audit']) {
      expect(request(command, '--limit', '5').query).toEqual({ limit: '5' })
      expect(request(command)).not.toHaveProperty('query')
    }
  })

  test('answers are shown as a table or as JSON, as requested, but not both', () => {
    expect(request('progress', '--table').form).toBe('table')
    expect(request('start', '--source', 'cluster0', '--json').form).toBe('json')
    expect(refused(['instances', '--table', '--json'])).toMatch(/cannot be used with/)
    expect(refused(['mismatches', '--table'])).toMatch(/unknown option '--table'/)
  })

  test('start builds its body from the given options', () => {
    expect(request('start', '--source', 'cluster0', '--destination', 'cluster1').body).toEqual({
      inline: { source: 'cluster0', destination: 'cluster1' },
    })
    const all = ['--buildIndexes', 'never', '--enableUserWriteBlocking', 'none', '--reversible', '--no-verification']
    expect(request('start', ...all).body).toEqual({
      inline: {
        buildIndexes: 'never',
        enableUserWriteBlocking: 'none',
        reversible: true,
        verification: { enabled: false },
      },
    })
    expect(request('start', '--existingData', 'converge').body).toEqual({ inline: { existingData: 'converge' } })
    const hashed = ['--verificationMethod', 'toHashedIndexKey']
    expect(request('start', ...hashed).body).toEqual({
      inline: { verification: { initialCompareMethod: 'toHashedIndexKey' } },
    })
    expect(request('check', ...hashed, '--no-verification').body).toEqual({
      inline: { verification: { enabled: false, initialCompareMethod: 'toHashedIndexKey' } },
    })
    expect(request('check', '--timeseries', 'skip').body).toEqual({ inline: { timeseries: 'skip' } })
    expect(request('check', '--skipDiskSpaceCheck').body).toEqual({ inline: { skipDiskSpaceCheck: true } })
    const natural = ['shop.orders', 'crm', 'shop.a.b', '.'].flatMap((name) => ['--copyInNaturalOrder', name])
    expect(request('start', ...natural, '--no-detectRandomId').body).toEqual({
      inline: {
        copyInNaturalOrder: [
          { database: 'shop', collections: ['orders', 'a.b'] },
          { database: 'crm' },
          { database: '.' },
        ],
        detectRandomId: false,
      },
    })
    expect(refused(['start', '--copyInNaturalOrder', 'admin'])).toMatch(/never synced/)
    expect(request('check', '--remap', 'shop=store', '--remap', 'store=shop').body).toEqual({
      inline: {
        namespaceRemap: [
          { from: { database: 'shop' }, to: { database: 'store' } },
          { from: { database: 'store' }, to: { database: 'shop' } },
        ],
      },
    })
    for (const text of ['shop', 'shop=', '=store', 'a=b=c'])
      expect(refused(['start', '--remap', text])).toMatch(/form source=destination/)
    expect(request('start', '--remap', 'shop.a.b=store.c').body).toEqual({
      inline: {
        namespaceRemap: [{ from: { database: 'shop', collection: 'a.b' }, to: { database: 'store', collection: 'c' } }],
      },
    })
    for (const text of ['shop.a=store', 'shop=store.a', 'shop.=store.a', '.a=store.a'])
      expect(refused(['start', '--remap', text])).toMatch(/two databases or of two collections/)
    expect(refused(['start', '--remap', 'a=c', '--remap', 'b=c'])).toMatch(/is the target of namespaceRemap\[0\]/)
    expect(request('start', '--enableUserWriteBlocking', 'true').body).toEqual({
      inline: { enableUserWriteBlocking: true },
    })
    expect(request('start', '--enableUserWriteBlocking', 'constructor').body).toEqual({
      inline: { enableUserWriteBlocking: 'constructor' },
    })
  })

  test('start takes a whole body as JSON or from a file', () => {
    expect(request('start', '--body', '{"source":"cluster1"}').body).toEqual({ inline: { source: 'cluster1' } })
    expect(request('start', '--body', '@start.json').body).toEqual({ file: 'start.json' })
    expect(refused(['start', '--body', '{'])).toMatch(/--body is not valid JSON/)
    expect(refused(['start', '--body', '{}', '--reversible'])).toMatch(
      /'--body <json>' cannot be used with option '--reversible'/,
    )
  })

  test.each(['localhost:27182', 'ftp://a', 'http://u:p@a', 'http://a?x=1', ''])('the address %j is refused', (url) => {
    expect(refused(['progress', '--url', url])).toMatch(/It must be/)
  })
})
