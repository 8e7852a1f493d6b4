import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { withDirectoryLock } from './directory-lock.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { assertWheelsRunHere, moveOut, unpackWheel } from './python-wheels.ts'

const run = promisify(execFile)

/** The wheel holds the library, built for glibc. The Python module around it is not used. */
const version = '3.0.1'
const lockPatienceSeconds = 600
/** Where the package `libfaketime` of Debian and Ubuntu installs it. */
const installed = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'

let resolution: Promise<string> | undefined

/** Path of the library libfaketime: `TANDEM_FAKETIME`, the system's, the project's cache, a package from PyPI. Linux x64. */
export function resolveFaketime(): Promise<string> {
  resolution ??= resolve()
  return resolution
}

async function resolve(): Promise<string> {
  const named = process.env['TANDEM_FAKETIME']
  if (named) {
    if (!(await works(named))) throw new Error(`TANDEM_FAKETIME is set, but ${named} does not change the time`)
    return named
  }
  if (await works(installed)) return installed
  const cached = path.join(cacheFolder(), `libfaketime-${version}`, 'libfaketime.so.1')
  if (await works(cached)) return cached
  return await withDirectoryLock(path.join(cacheFolder(), '.lock'), lockPatienceSeconds, async () => {
    // Another process may have fetched it meanwhile.
    if (!(await works(cached))) await fetchInto(cached)
    return cached
  })
}

/** Fetches into a staging folder and publishes by rename, so a cache entry is complete when it can be seen. */
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
    throw new Error(`no libfaketime to be found or fetched (${why}). Set TANDEM_FAKETIME to the path of the library.`)
  } finally {
    rmSync(staging, { recursive: true, force: true })
  }
}

/** The dynamic linker warns of a library that it cannot load, and goes on without it. */
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
