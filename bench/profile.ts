/**
 * `--profile` loads this module into each tandem process. The module writes a CPU profile of the process from start to
 * exit. Chrome's developer tools can open the profile. (Node.js 20 does not allow `--cpu-prof` in NODE_OPTIONS.)
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import path from 'node:path'

const folder = process.env['BENCH_PROFILES'] ?? '.'
const session = new Session()
session.connect()
session.post('Profiler.enable')
session.post('Profiler.start')
process.once('exit', () => {
  // An inspector session in the same thread calls back before `post` returns.
  session.post('Profiler.stop', (error, result) => {
    if (error) return
    mkdirSync(folder, { recursive: true })
    writeFileSync(path.join(folder, `tandem-${process.pid}.cpuprofile`), JSON.stringify(result.profile))
  })
})
