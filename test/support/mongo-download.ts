import { execFile } from 'node:child_process'
import { rmSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { MongodVersion } from './mongo-binaries.ts'

const run = promisify(execFile)

const downloadSite = 'https://downloads.mongodb.org/full.json'
/** A network that blocks this site may reject or drop the connection; this must not delay the tests. */
const reachableTimeoutMs = 5_000
/** Time limit of a download of about 150 MB. */
const downloadTimeoutMs = 600_000

interface Download {
  version: string
  distribution?: string
}

/**
 * Returns the downloads to try, best first. The downloader picks the newest build for this distribution or an older release of
 * it. That build may not run (6.0 was never built for Debian 12, and the build for Debian 10 needs OpenSSL 1.1), so the
 * caller checks it.
 */
export function downloadsFor(wanted: MongodVersion | undefined): Download[] {
  if (wanted === '5.0') return [{ version: '5.0.x' }]
  const linux: Download[] = process.platform === 'linux' ? [{ version: '6.0.x', distribution: 'ubuntu2204' }] : []
  const downloads: Download[] = [{ version: '6.0.x' }, ...linux]
  return wanted === '6.0' ? downloads : [...downloads, { version: '7.0.x' }, { version: '8.0.x' }]
}

export async function assertDownloadSiteReachable(): Promise<void> {
  try {
    await fetch(downloadSite, { method: 'HEAD', signal: AbortSignal.timeout(reachableTimeoutMs) })
  } catch (error) {
    const { cause, message } = error as Error
    throw new Error(
      `${new URL(downloadSite).host} cannot be reached: ${cause instanceof Error ? cause.message : message}`,
    )
  }
}

/** Downloads `bin/mongod` and `bin/mongos` into the staging folder. */
export async function fetchDownload(download: Download, staging: string): Promise<void> {
  const program = fileURLToPath(new URL('./mongo-download-main.ts', import.meta.url))
  const { version, distribution } = download
  const args = ['--import', 'tsx', program, staging, version, ...(distribution ? [distribution] : [])]
  try {
    await run(process.execPath, args, {
      cwd: path.dirname(program), // Node resolves `tsx` from this folder.
      timeout: downloadTimeoutMs,
      killSignal: 'SIGKILL',
    })
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string }
    const reason = (stderr ?? '').split('\n').find((line) => /^\w*Error: /.test(line))
    throw new Error(`${version}${distribution ? ` for ${distribution}` : ''}: ${reason ?? message.split('\n')[0]}`)
  } finally {
    rmSync(path.join(staging, 'download'), { recursive: true, force: true })
  }
}
