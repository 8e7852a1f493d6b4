import path from 'node:path'
import process from 'node:process'
import { type GuardedProcess, spawnGuarded } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { environment } from '../support/program-run.ts'

/** A rehearsal by the built program, and what it has printed so far. */
export interface Run {
  process: GuardedProcess
  out: () => string
  err: () => string
}

export function startRehearse(args: string[], { cluster0, cluster1 }: { cluster0: string; cluster1: string }): Run {
  const main = path.resolve(repositoryRoot, 'dist/main.js')
  const spawned = spawnGuarded(process.execPath, [main, 'rehearse', ...args], {
    cwd: repositoryRoot,
    // The token must not reach the instances of the rehearsal, because they would refuse the rehearsal's requests.
    env: { ...environment(), TANDEM_TOKEN: 'x'.repeat(32), TANDEM_CLUSTER0: cluster0, TANDEM_CLUSTER1: cluster1 },
    output: 'pipe',
  })
  let [out, err] = ['', '']
  spawned.child.stdout?.on('data', (text: Buffer) => {
    out += text
  })
  spawned.child.stderr?.on('data', (text: Buffer) => {
    err += text
  })
  return { process: spawned, out: () => out, err: () => err }
}
