import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { withDirectoryLock } from './directory-lock.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { assertWheelsRunHere, moveOut, unpackWheel } from './python-wheels.ts'

const run = promisify(execFile)

/** Version of the wheel, which contains the library built for glibc. The Python module around it is not used. */
const version = '3.0.1'
const lockPatienceSeconds = 600
/** Path at which the package `libfaketime` of Debian and Ubuntu installs the library. */
const installed = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'

let resolution: Promise<string> | undefined

/**
 * Returns the path of the library libfaketime from the first of these: `TANDEM_FAKETIME`, the system, the project's
 * cache, a package from PyPI. Linux x64 only.
 */
export function resolveFaketime(): Promise<string> {
  resolution ??= resolve()
  return resolution
}

async function resolve(): Promise<string> {
  const configured = process.env['TANDEM_FAKETIME']
  if (configured) {
    if (!(await works(configured)))
      throw new Error(`TANDEM_FAKETIME is set, but ${configured} does not change the time`)
    return configured
  }
  if (await works(installed)) return installed
  const cached = path.join(cacheFolder(), `libfaketime-${version}`, 'libfaketime.so.1')
  if (await works(cached)) return cached
  return await withDirectoryLock(path.join(cacheFolder(), '.lock'), lockPatienceSeconds, async () => {
    // Another process may have fetched it while this one waited for the lock.
    if (!(await works(cached))) await fetchInto(cached)
    return cached
  })
}

/** Fetches into a staging folder and publishes by rename, so every visible cache entry is complete. */
async function fetchInto(cached: string): Promise<void> {
  mkdirSync(cacheFolder(), { recursive: true })
  const staging = mkdtempSync(path.join(cacheFolder(), '.staging-'))
  try {
    assertWheelsRunHere()
    const unpacked = path.join(staging, 'unpacked')
    await unpackWheel(`libfaketime==${version}`, [], unpacked)
    const library = moveOut(unpacked, /\/libfaketime\.so\.1$/, staging)
    rmSync(unpacked, { recursive: true })
    if (!(await works(path.join(staging, library)))) throw new Error('the library in the package does not work here')
    rmSync(path.dirname(cached), { recursive: true, force: true })
    renameSync(staging, path.dirname(cached))
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(
      `libfaketime is not installed and could not be fetched (${why}). Set TANDEM_FAKETIME to the path of the library.`,
    )
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

/**
 * Checks that the library changes the time. The dynamic linker only warns about a library that it cannot load and
 * continues without it.
 */
async function works(library: string): Promise<boolean> {
  if (!existsSync(library)) return false
  const shift = 1_000_000
  const env = { ...process.env, LD_PRELOAD: library, FAKETIME: `+${shift}` }
  const { stdout } = await run('date', ['+%s'], { env, timeout: 20_000 }).catch(() => ({ stdout: '0' }))
  return Number(stdout) - Date.now() / 1_000 > shift / 2
}

function cacheFolder(): string {
  return path.resolve(process.env['TANDEM_CACHE_DIR'] ?? path.join(repositoryRoot, '.cache'), 'faketime')
}
