import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'
import { refused, served } from './parsed.ts'

const folder = mkdtempSync(join(tmpdir(), 'tandem-settings-'))
let files = 0
function yaml(text: string, mode = 0o600): string {
  files += 1
  const path = join(folder, `${files}.yaml`)
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}
const clusters = 'cluster0: mongodb://root:hunter2@a\ncluster1: mongodb://b\n'

describe('the options of an instance', () => {
  test('come from a file in the format of mongosync', () => {
    const config = yaml(
      `${clusters}port: 27190\nid: shardA\nverbosity: WARN\nacceptDisclaimer: true\nexitOnFailure: true\n`,
    )
    expect(served(['--config', config])).toMatchObject({
      cluster0: 'mongodb://root:hunter2@a',
      port: 27_190,
      id: 'shardA',
      logLevel: 'warn',
      exitOnFailure: true,
      notices: [expect.stringMatching(/^--acceptDisclaimer is ignored/)],
    })
    expect(served([], { TANDEM_CONFIG: config })).toMatchObject({ id: 'shardA' })
  })

  test('may be lists in the file if they are options of mongosync that have no effect', () => {
    const hot = 'hotDocIDs:\n  - { db: app, collection: things, ids: [1, 2] }\ncreateIndexesBatchSize: 4\n'
    expect(served(['--config', yaml(clusters + hot)])).toMatchObject({
      notices: [
        expect.stringMatching(/^--createIndexesBatchSize is ignored/),
        expect.stringMatching(/^--hotDocIDs is ignored/),
      ],
    })
  })

  test('the command line overrides the environment, which overrides the file, which overrides the default', () => {
    const config = yaml(`${clusters}port: 1\nloadLevel: 1\nid: file\n`)
    const env = { TANDEM_PORT: '2', TANDEM_LOAD_LEVEL: '2', TANDEM_CONFIG: config }
    expect(served(['--port', '3'], env)).toMatchObject({ port: 3, loadLevel: 2, id: 'file', logLevel: 'info' })
    // An option that repeats the default value still overrides the environment.
    expect(served(['--port', '27182'], env)).toMatchObject({ port: 27_182 })
  })

  test.each([
    ['prot: 1', /"prot" is not an option; did you mean port\?/],
    ['loadlevel: 1', /"loadlevel" is not an option; did you mean loadLevel\?/],
    ['password: secret', /"password" is not an option; the options are cluster0, cluster1/],
    ['port: 99999', /: port: It must be an integer from 0 to 65535/],
    ['port: [1]', /: port: It must be a single value/],
    ['exitOnFailure: maybe', /: exitOnFailure: It must be true or false/],
    ['- port', /must hold options by name/],
    ['port: 1\nport: 2', /not valid YAML \(DUPLICATE_KEY at line 2, column 1\)/],
    ['cluster0: "mongodb://root:hunter2@a', /not valid YAML/],
    ['cluster0: http://root:hunter2@a', /cluster0: /],
  ])('a file with %j is refused with the name of the option and without its value', (text, message) => {
    const config = yaml(text)
    expect(refused(['--config', config, '--cluster1', 'mongodb://b'])).toMatch(message)
    expect(refused(['--config', config, '--cluster1', 'mongodb://b'])).not.toMatch(/hunter2|secret/)
  })

  test.each([
    ['TANDEM_LOADLEVEL', /TANDEM_LOADLEVEL is not an option; did you mean TANDEM_LOAD_LEVEL\?/],
    // The fault tests of an earlier release set these variables.
    ['TANDEM_CRASH_AT', /TANDEM_CRASH_AT is not an option/],
    ['TANDEM_DROP_EVENTS_OF', /TANDEM_DROP_EVENTS_OF is not an option/],
    ['TANDEM_SOMETHING_ELSE', /TANDEM_SOMETHING_ELSE is not an option; the options are TANDEM_CLUSTER0/],
  ])('the unknown variable %s is refused, without its value', (name, message) => {
    const config = yaml(clusters)
    expect(refused(['--config', config], { [name]: 'hunter2' })).toMatch(message)
    expect(refused(['--config', config], { [name]: 'hunter2' })).not.toMatch(/hunter2/)
  })

  test('the variables that Kubernetes sets for a service called tandem are not refused as misspelled options', () => {
    const env = {
      TANDEM_SERVICE_HOST: '10.0.0.1',
      TANDEM_SERVICE_PORT: '27182',
      TANDEM_SERVICE_PORT_HTTP: '27182',
      TANDEM_A_PORT: 'tcp://10.0.0.1:27182',
      TANDEM_A_PORT_27182_TCP: 'tcp://10.0.0.1:27182',
      TANDEM_A_PORT_27182_TCP_ADDR: '10.0.0.1',
    }
    expect(served(['--config', yaml(clusters)], env)).toMatchObject({ port: 27_182 })
  })

  test('a variable with an invalid value and a missing file are refused with their names', () => {
    expect(refused([], { TANDEM_LOAD_LEVEL: '9' })).toMatch(
      /environment variable TANDEM_LOAD_LEVEL: It must be an integer/,
    )
    expect(refused(['--config', join(folder, 'none.yaml')])).toMatch(/--config: cannot read .*none\.yaml: ENOENT/)
  })

  const plain = 'cluster0: mongodb://a\ncluster1: mongodb://b\n'
  const spaced = 'cluster0: mongodb://root:hunter2 hunter2@a\ncluster1: mongodb://b\n'
  test.each([clusters, spaced, `${plain}token: ${'a'.repeat(32)}\n`, `${plain}redis: redis://:hunter2@c\n`])(
    'a file with a secret that other users can read is refused: %j',
    (text) => {
      for (const argv of [[], ['config']]) {
        const answer = refused([...argv, '--config', yaml(text, 0o644)])
        expect(answer).toMatch(/--config: .*\.yaml holds a secret, .*\(mode 0644\); "chmod o-r /)
        expect(answer).not.toMatch(/hunter2|aaaa/)
      }
      for (const mode of [0o600, 0o640, 0o440]) expect(served(['--config', yaml(text, mode)]).notices).toEqual([])
    },
  )

  test('a file without a secret may be readable by all users', () => {
    expect(served(['--config', yaml(`${plain}redis: redis://c\n`, 0o644)])).toMatchObject({ redis: 'redis://c' })
  })
})

describe('tandem config', () => {
  test('prints no part of a password that contains a space', () => {
    const [secret, clusterUri] = ['hunter2 hunter2', 'mongodb://root:hunter2 hunter2@a']
    const uri = `${clusterUri}/?tlsCertificateKeyFilePassword=${secret}&tls=true`
    const argv = ['config', '--cluster0', uri, '--cluster1', clusterUri, '--redis', `redis://:${secret}@c`]
    const parsed = parseCommandLine(argv, {}, '1.2.3')
    if (parsed.kind !== 'print') throw new Error(parsed.kind)
    expect(parsed.text).not.toMatch(/root|hunter2/)
    expect(parsed.text).toContain('mongodb://***@a/?tlsCertificateKeyFilePassword=***&tls=true')
  })

  const env = (config: string) => ({ TANDEM_CONFIG: config, TANDEM_VERBOSITY: 'ERROR' })

  test('prints the effective options and their origin, without credentials', () => {
    const parsed = parseCommandLine(['config', '--json', '--port', '5'], env(yaml(`${clusters}id: x\n`)))
    if (parsed.kind !== 'print') throw new Error(parsed.kind)
    const settings = JSON.parse(parsed.text) as { name: string; value: unknown; origin: string }[]
    expect(Object.fromEntries(settings.map(({ name, value, origin }) => [name, [value, origin]]))).toEqual({
      cluster0: [expect.not.stringContaining('hunter2'), 'file'],
      cluster1: ['mongodb://b', 'file'],
      redis: [null, 'default'],
      redisTlsCAFile: [null, 'default'],
      redisTlsCert: [null, 'default'],
      redisTlsKey: [null, 'default'],
      port: [5, 'command line'],
      id: ['x', 'file'],
      bind: ['127.0.0.1', 'default'],
      tlsCert: [null, 'default'],
      tlsKey: [null, 'default'],
      token: [null, 'default'],
      tokenFile: [null, 'default'],
      readTokenFile: [null, 'default'],
      syncName: [null, 'default'],
      loadLevel: [3, 'default'],
      copyReadPreference: ['primary', 'default'],
      shardNames: [null, 'default'],
      logPath: [null, 'default'],
      logMaxMB: [100, 'default'],
      logFiles: [10, 'default'],
      verbosity: ['error', 'environment'],
      exitOnFailure: [false, 'default'],
    })
  })

  test('prints a table without --json', () => {
    const parsed = parseCommandLine(['config'], env(yaml(clusters)))
    expect(parsed).toMatchObject({ kind: 'print', stream: 'stdout', exitCode: 0 })
    expect((parsed as { text: string }).text).toMatch(/^option +value +from\n(.*\n)*port +27182 +default\n/)
  })
})
