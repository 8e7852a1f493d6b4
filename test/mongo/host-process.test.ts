import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { hostProcess, type ProcessIdentity } from '../../src/mongo/host-process.ts'

const own = (): ProcessIdentity => hostProcess.identity() as ProcessIdentity

/** Starts another process, which prints its identity and runs until it is killed. */
async function another(): Promise<{ identity: ProcessIdentity; kill: () => Promise<unknown> }> {
  const module = fileURLToPath(new URL('../../src/mongo/host-process.ts', import.meta.url))
  const script = `
    import { hostProcess } from ${JSON.stringify(module)}
    process.stdout.write(JSON.stringify(hostProcess.identity()))
    setInterval(() => {}, 1_000)`
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [printed] = (await once(child.stdout, 'data')) as [Buffer]
  const kill = async (): Promise<unknown> => {
    child.kill('SIGKILL')
    return await once(child, 'exit')
  }
  return { identity: JSON.parse(printed.toString()), kill }
}

describe.runIf(process.platform === 'linux')('a process', () => {
  it('always has the same identity, and is not reported as ended while it runs', () => {
    expect(own()).toEqual(hostProcess.identity())
    expect(own().pid).toBe(process.pid)
    expect(hostProcess.hasEnded(own())).toBe(false)
  })

  it('is reported as ended after it was killed, and not before', async () => {
    const { identity, kill } = await another()
    expect(hostProcess.hasEnded(identity)).toBe(false)
    await kill()
    expect(hostProcess.hasEnded(identity)).toBe(true)
  })

  it('is reported as ended if its pid belongs to a process that started at another time', () => {
    expect(hostProcess.hasEnded({ ...own(), startedAt: '1' })).toBe(true)
  })

  it.each([
    ['of another container, although it has the same pid', { pidNamespace: 'pid:[1]' }],
    ['of another container, although no process here has its pid', { pidNamespace: 'pid:[1]', pid: 0x7fff_fff0 }],
    ['of another machine, or of this machine before a reboot,', { bootID: 'another', startedAt: '1' }],
  ])('%s is not known to have ended', (_what, differences) => {
    expect(hostProcess.hasEnded({ ...own(), ...differences })).toBe(false)
  })
})
