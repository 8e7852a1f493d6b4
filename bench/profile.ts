/**
 * Loaded into a tandem process by `--profile`: samples its CPU from start to exit and leaves a file for Chrome's
 * developer tools. (`--cpu-prof` would do, were it allowed in NODE_OPTIONS.)
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import path from 'node:path'

const folder = process.env['TANDEM_BENCH_PROFILES'] ?? '.'
const session = new Session()
session.connect()
session.post('Profiler.enable')
session.post('Profiler.start')
process.once('exit', () => {
  // Within one thread the answer comes before `post` returns.
  session.post('Profiler.stop', (error, result) => {
    if (error) return
    mkdirSync(folder, { recursive: true })
    writeFileSync(path.join(folder, `tandem-${process.pid}.cpuprofile`), JSON.stringify(result.profile))
  })
})
