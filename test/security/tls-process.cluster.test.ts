import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { claimPorts } from '../support/free-ports.ts'
import { spawnGuarded } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { environment } from '../support/program-run.ts'
import { tlsFiles, tlsPem } from '../support/tls/files.ts'

/** The command line of tandem operates an instance that serves HTTPS and requires a token, from start to commit. */

const pair = pairedSets()
const entry = path.join(repositoryRoot, 'dist/main.js')
let folder: string
let tokenFile: string
let certificate: string
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tandem-tls-'))
  tokenFile = path.join(folder, 'token')
  writeFileSync(tokenFile, `${'d4'.repeat(20)}\n`, { mode: 0o600 })
  certificate = path.join(folder, 'server.pem')
  writeFileSync(certificate, tlsPem.server, { mode: 0o600 })
})
afterAll(() => rm(folder, { recursive: true }))

it('an instance is operated over HTTPS with its token, and refuses access without it', {
  timeout: 180_000,
}, async () => {
  await pair.sourceClient.db('app').collection('things').insertOne({ n: 1 })
  const claimed = await claimPorts(1)
  const url = `https://localhost:${claimed.ports[0]}`
  // The key is in the same file as the certificate, as with MongoDB's tools.
  const options = {
    cluster0: pair.source.uri,
    cluster1: pair.destination.uri,
    port: String(claimed.ports[0]),
    tlsCert: certificate,
    tlsKey: certificate,
    tokenFile,
  }
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])
  const instance = spawnGuarded(process.execPath, [entry, ...args], {
    cwd: repositoryRoot,
    env: environment(),
    output: 'pipe',
  })
  instance.child.stdout?.resume()
  instance.child.stderr?.resume()
  const cli = (command: string[], access = ['--tlsCAFile', tlsFiles.authority, '--tokenFile', tokenFile]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [entry, ...command, '--url', url, ...access], {
      encoding: 'utf8',
    })
    return { status, stdout, stderr }
  }
  const succeeded = { status: 0, stdout: expect.stringContaining('"success": true') }
  try {
    // The poll also waits until the instance listens and has reached its clusters.
    await expect.poll(() => cli(['progress']), { timeout: 60_000, interval: 200 }).toMatchObject(succeeded)
    expect(cli(['progress'], ['--tlsCAFile', tlsFiles.authority]).stdout).toContain('"Unauthorized"')
    expect(cli(['progress'], ['--tokenFile', tokenFile]).stderr).toContain('--tlsCAFile')
    expect(cli(['start', '--source', 'cluster0', '--destination', 'cluster1'])).toMatchObject(succeeded)
    expect(cli(['wait', '--until', 'canCommit', '--timeout', '60'])).toMatchObject({ status: 0 })
    expect(cli(['commit'])).toMatchObject(succeeded)
    expect(cli(['wait', '--until', 'committed', '--timeout', '60'])).toMatchObject({ status: 0 })
    expect(await pair.destinationClient.db('app').collection('things').countDocuments()).toBe(1)
    expect(cli(['audit']).stdout).toMatch(/"command": "commit"/)
  } finally {
    await instance.kill('SIGTERM')
    claimed.release()
  }
  expect(await instance.ended).toBe(0)
})
