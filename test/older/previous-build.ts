import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import process from 'node:process'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/**
 * Returns the commit whose program begins the sync: `TANDEM_PREVIOUS` (a tag or a commit), otherwise the newest tag
 * before HEAD. Returns null if no tag is found, for example in a shallow clone or without git.
 * @throws if `TANDEM_PREVIOUS` names no commit of this repository
 */
export function previousCommit(): string | null {
  const given = process.env['TANDEM_PREVIOUS']
  if (!given) return git('describe', '--tags', '--abbrev=0', 'HEAD^')
  const commit = git('rev-parse', '--verify', '--quiet', `${given}^{commit}`)
  if (commit === null)
    throw new Error(
      `TANDEM_PREVIOUS: ${given} is no commit of this repository; in a shallow clone run \`git fetch --unshallow --tags\` first`,
    )
  return commit
}

function git(...args: string[]): string | null {
  try {
    return execFileSync('git', args, {
      cwd: repositoryRoot,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  } catch {
    return null
  }
}

export interface PreviousBuild extends Disposable {
  /** Path of the program. */
  entry: string
}

/**
 * Builds the program of the commit in a temporary folder. The work tree and the index of the repository do not change.
 */
export function buildPrevious(commit: string): PreviousBuild {
  const folder = mkdtempSync(path.join(tmpdir(), 'tandem-previous-'))
  const [run, lock] = [{ cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] as const }, 'package-lock.json']
  try {
    const archive = path.join(folder, 'source.tar')
    execFileSync('git', ['archive', '--format=tar', `--output=${archive}`, commit], { cwd: repositoryRoot })
    execFileSync('tar', ['-xf', archive], { cwd: folder })
    const lockOf = (root: string) => readFileSync(path.join(root, lock), 'utf8')
    if (lockOf(folder) === lockOf(repositoryRoot))
      symlinkSync(path.join(repositoryRoot, 'node_modules'), path.join(folder, 'node_modules'))
    else execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { ...run, stdio: [...run.stdio] })
    // The build script of an older commit may not accept `--noCheck`.
    execFileSync('npm', ['exec', '--', 'tsc', '-p', 'tsconfig.build.json', '--noCheck'], {
      ...run,
      stdio: [...run.stdio],
    })
    cpSync(path.join(folder, 'src/dashboard'), path.join(folder, 'dist/src/dashboard'), { recursive: true })
  } catch (error) {
    rmSync(folder, { recursive: true, force: true })
    throw error
  }
  return {
    entry: path.join(folder, 'dist/src/main.js'),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}
