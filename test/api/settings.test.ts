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
  test('come from a file, which mongosync’s users have', () => {
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

  test('the command line goes before the environment, that before the file, and that before the default', () => {
    const config = yaml(`${clusters}port: 1\nloadLevel: 1\nid: file\n`)
    const env = { TANDEM_PORT: '2', TANDEM_LOAD_LEVEL: '2', TANDEM_CONFIG: config }
    expect(served(['--port', '3'], env)).toMatchObject({ port: 3, loadLevel: 2, id: 'file', logLevel: 'info' })
    // The value of a default, said aloud, is not a default.
    expect(served(['--port', '27182'], env)).toMatchObject({ port: 27_182 })
  })

  test.each([
    ['prot: 1', /"prot" is no option; did you mean port\?/],
    ['loadlevel: 1', /"loadlevel" is no option; did you mean loadLevel\?/],
    ['password: secret', /"password" is no option; there are cluster0, cluster1/],
    ['port: 99999', /: port: It must be an integer from 0 to 65535/],
    ['port: [1]', /: port: It must be a single value/],
    ['exitOnFailure: maybe', /: exitOnFailure: It must be true or false/],
    ['- port', /must hold options by name/],
    ['port: 1\nport: 2', /not valid YAML \(DUPLICATE_KEY at byte \d+\)/],
    ['cluster0: "mongodb://root:hunter2@a', /not valid YAML/],
    ['cluster0: http://root:hunter2@a', /cluster0: /],
  ])('a file with %j is refused by name, without what it holds', (text, message) => {
    const config = yaml(text)
    expect(refused(['--config', config, '--cluster1', 'mongodb://b'])).toMatch(message)
    expect(refused(['--config', config, '--cluster1', 'mongodb://b'])).not.toMatch(/hunter2|secret/)
  })

  test.each([
    ['TANDEM_LOADLEVEL', /TANDEM_LOADLEVEL is no option; did you mean TANDEM_LOAD_LEVEL\?/],
    // What an earlier release's fault tests set.
    ['TANDEM_CRASH_AT', /TANDEM_CRASH_AT is no option/],
    ['TANDEM_DROP_EVENTS_OF', /TANDEM_DROP_EVENTS_OF is no option/],
    ['TANDEM_SOMETHING_ELSE', /TANDEM_SOMETHING_ELSE is no option; there are TANDEM_CLUSTER0/],
  ])('the unknown variable %s is refused, without its value', (name, message) => {
    const config = yaml(clusters)
    expect(refused(['--config', config], { [name]: 'hunter2' })).toMatch(message)
    expect(refused(['--config', config], { [name]: 'hunter2' })).not.toMatch(/hunter2/)
  })

  test('the variables that Kubernetes makes for a service called tandem are not misspelt ones', () => {
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

  test('a variable with a bad value, and a file that is not there, are refused by name', () => {
    expect(refused([], { TANDEM_LOAD_LEVEL: '9' })).toMatch(
      /environment variable TANDEM_LOAD_LEVEL: It must be an integer/,
    )
    expect(refused(['--config', join(folder, 'none.yaml')])).toMatch(/--config: cannot read .*none\.yaml: ENOENT/)
  })

  const plain = 'cluster0: mongodb://a\ncluster1: mongodb://b\n'
  test.each([clusters, `${plain}token: ${'a'.repeat(32)}\n`, `${plain}redis: redis://:hunter2@c\n`])(
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

  test('a file without a secret may be read by all', () => {
    expect(served(['--config', yaml(`${plain}redis: redis://c\n`, 0o644)])).toMatchObject({ redis: 'redis://c' })
  })
})

describe('tandem config', () => {
  const env = (config: string) => ({ TANDEM_CONFIG: config, TANDEM_VERBOSITY: 'ERROR' })

  test('prints what counts and where it comes from, without credentials', () => {
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
      loadLevel: [3, 'default'],
      logPath: [null, 'default'],
      logMaxMB: [100, 'default'],
      logFiles: [10, 'default'],
      verbosity: ['error', 'environment'],
      exitOnFailure: [false, 'default'],
    })
  })

  test('as a table, for people', () => {
    const parsed = parseCommandLine(['config'], env(yaml(clusters)))
    expect(parsed).toMatchObject({ kind: 'print', stream: 'stdout', exitCode: 0 })
    expect((parsed as { text: string }).text).toMatch(/^option +value +from\n(.*\n)*port +27182 +default\n/)
  })
})
