import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { metricsContentType } from '../../src/api/metrics.ts'
import { parseCommandLine } from '../../src/cli/options.ts'
import { apiUnderTest } from '../api/recording-instance.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/**
 * docker-compose.yml is consistent with the files that it mounts. The tests run no container, because a test machine may have no
 * container engine.
 */

interface Service {
  image?: string
  build?: string
  command?: string[]
  network_mode?: string
  profiles?: string[]
  ports?: string[]
  volumes?: string[]
  depends_on?: string[] | Record<string, unknown>
  environment?: Record<string, string>
}

const read = (file: string): string => readFileSync(path.join(repositoryRoot, file), 'utf8')
const parsed = <T>(file: string): T => parse(read(file), { merge: true }) as T
const { services, volumes } = parsed<{ services: Record<string, Service>; volumes: Record<string, null> }>(
  'docker-compose.yml',
)
const all = Object.entries(services)
const withImage = (name: string) => all.filter(([, { image }]) => image?.startsWith(`${name}:`))
const mountsOf = ({ volumes = [] }: Service) =>
  volumes.map((volume) => {
    const [from = '', to = '', mode = ''] = volume.split(':')
    return { from, to, mode }
  })
/** Returns the file of this repository that is mounted at a path in the container. */
const mountedAt = (service: Service, at: string): string =>
  mountsOf(service).find(({ to }) => to === at)?.from ?? `nothing is mounted at ${at}`
const networkOwnerOf = ({ network_mode: mode = '' }: Service): string => mode.replace(/^service:/, '')
/** Returns the ports on which instances on this network listen. */
const portsOf = (networkOwner: string): string[] =>
  all
    .filter(([, service]) => service.build !== undefined && networkOwnerOf(service) === networkOwner)
    .map(([, { environment = {} }]) => environment['TANDEM_PORT'] ?? '27182')

test('each service that another service needs exists, in at least the same profiles', () => {
  for (const [name, service] of all) {
    const { depends_on: needed = [] } = service
    const names = [
      ...(Array.isArray(needed) ? needed : Object.keys(needed)),
      ...(networkOwnerOf(service) ? [networkOwnerOf(service)] : []),
    ]
    for (const one of names) {
      expect(Object.keys(services), name).toContain(one)
      const { profiles = [] } = services[one] as Service
      // A service without a profile always runs.
      if (profiles.length > 0)
        expect(profiles, `${one}, for ${name}`).toEqual(expect.arrayContaining(service.profiles ?? ['none']))
    }
  }
})

test('every mounted file is in the repository and read-only, and only one service writes to a volume', () => {
  const mounts = all.flatMap(([name, service]) => mountsOf(service).map((mount) => ({ name, ...mount })))
  expect(mounts.length).toBeGreaterThan(0)
  for (const { name, from, mode } of mounts) {
    if (from in volumes) {
      expect(mode, `${from} of ${name}`).toBe(name === 'tokens' ? '' : 'ro')
      continue
    }
    expect(existsSync(path.join(repositoryRoot, from)), from).toBe(true)
    expect(mode).toBe('ro')
  }
})

test('instances take their address from the environment, because the health check of the image does not see arguments', () => {
  const instances = all.filter(([, { build }]) => build !== undefined)
  expect(instances.length).toBeGreaterThan(0)
  for (const [name, { command = [], environment = {} }] of instances) {
    expect(
      command.filter((one) => /^--(port|bind|tlsCert|config)/.test(one)),
      name,
    ).toEqual([])
    const port = environment['TANDEM_PORT'] ?? '27182'
    expect(parseCommandLine(['health'], environment), name).toEqual({
      kind: 'health',
      request: { url: `http://127.0.0.1:${port}` },
    })
  }
})

test('the health check of the image runs a command that exists in the image', () => {
  const [, check = ''] =
    /^HEALTHCHECK .* CMD \["sh", "-c", "tandem (\w+) \|\| exit 1"\]$/m.exec(read('Dockerfile')) ?? []
  expect(parseCommandLine([check], {})).toMatchObject({ kind: 'health' })
})

test('each port is published only once, and only to the loopback address of the host', () => {
  const published = all.flatMap(([, { ports = [] }]) => ports)
  for (const one of published) expect(one).toMatch(/^127\.0\.0\.1:\d+:\d+$/)
  expect(new Set(published.map((one) => one.split(':')[1])).size).toBe(published.length)
})

describe.each(withImage('prom/prometheus'))('%s', (_name, service) => {
  const argument = (name: string): string =>
    service.command?.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3) ?? ''
  const config = parsed<{
    rule_files: string[]
    scrape_configs: {
      metrics_path: string
      authorization: { credentials_file: string }
      static_configs: { targets: string[] }[]
    }[]
  }>(mountedAt(service, argument('config.file')))
  const [scrape] = config.scrape_configs

  test('scrapes every instance on its network, and no other target', () => {
    const targets = scrape?.static_configs.flatMap(({ targets }) => targets) ?? []
    expect([...targets].sort()).toEqual(
      portsOf(networkOwnerOf(service))
        .map((port) => `localhost:${port}`)
        .sort(),
    )
    expect(targets.length).toBeGreaterThan(0)
  })

  test('sends the read-only token, which it reads from a volume that does not contain the token for commands', () => {
    const at = scrape?.authorization.credentials_file as string
    expect(mountsOf(service).find(({ to }) => to === path.dirname(at))?.from).toBe('read-token')
    expect(mountsOf(service).some(({ from }) => from === 'tokens')).toBe(false)
    const instances = all.filter(
      ([, one]) => one.build !== undefined && networkOwnerOf(one) === networkOwnerOf(service),
    )
    for (const [, { environment = {}, volumes: mounted = [] }] of instances) {
      expect(mounted).toContain('tokens:/run/tandem:ro')
      expect(environment['TANDEM_TOKEN_FILE']).toBe('/run/tandem/control')
      expect(environment['TANDEM_READ_TOKEN_FILE']).toBe('/run/tandem/read')
    }
  })

  test('sends requests with the path and the host for which an instance answers with metrics', async () => {
    const { api } = apiUnderTest()
    const Host = scrape?.static_configs[0]?.targets[0] as string
    const answer = await api.request(scrape?.metrics_path as string, { headers: { Host } })
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, metricsContentType])
  })

  test('loads the rules of docs/alerts.yml', () => {
    expect(config.rule_files.map((file) => mountedAt(service, file))).toEqual(['./docs/alerts.yml'])
    expect(parsed<{ groups: { rules: unknown[] }[] }>('docs/alerts.yml').groups[0]?.rules.length).toBeGreaterThan(0)
  })
})

describe.each(withImage('grafana/grafana'))('%s', (_name, service) => {
  const provisioned = (what: string) => mountedAt(service, `/etc/grafana/provisioning/${what}/tandem.yml`)
  const [prometheus] = withImage('prom/prometheus').filter(
    ([name]) => Array.isArray(service.depends_on) && service.depends_on.includes(name),
  )

  test('queries the Prometheus of the same docker-compose.yml, at the address on which it listens', () => {
    const [source] = parsed<{ datasources: { type: string; url: string; isDefault: boolean }[] }>(
      provisioned('datasources'),
    ).datasources
    const url = source?.url.replace(/\$\{PROMETHEUS_HOST\}/, service.environment?.['PROMETHEUS_HOST'] ?? '')
    const listens = prometheus?.[1].command?.find((one) => one.startsWith('--web.listen-address='))
    expect(url).toBe(`http://${networkOwnerOf(prometheus?.[1] as Service)}:${listens?.split(':')[1]}`)
    expect(source).toMatchObject({ type: 'prometheus', isDefault: true })
  })

  test('finds the dashboard in its directory, and the dashboard uses the default data source', () => {
    const [provider] = parsed<{ providers: { options: { path: string } }[] }>(provisioned('dashboards')).providers
    const [file] = mountsOf(service).filter(({ to }) => path.dirname(to) === provider?.options.path)
    expect(file?.from).toBe('./docs/grafana.json')
    expect(service.environment?.['GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH']).toBe(file?.to)
    const { templating } = JSON.parse(read('docs/grafana.json')) as { templating: { list: unknown[] } }
    expect(templating.list).toContainEqual(expect.objectContaining({ type: 'datasource', query: 'prometheus' }))
  })
})
