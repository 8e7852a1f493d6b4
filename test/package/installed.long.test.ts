import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { guardPath, removeGuardedPath } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { environment } from '../support/program-run.ts'
import { startTandem } from '../support/tandem-process.ts'

/** The tarball of `npm pack` is installed into an empty folder. It runs the commands of docs/quick-start.md. */

const run = promisify(execFile)
const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-package-'))
guardPath(folder)
afterAll(() => removeGuardedPath(folder))
const user = path.join(folder, 'user')
const installed = path.join(user, 'node_modules/tandem-sync')

const npm = (args: string[], cwd: string) => run('npm', args, { cwd, env: environment(), maxBuffer: 16 << 20 })

/** Returns null if npm reaches its registry, otherwise the first line of npm's error. */
async function registryProblem(): Promise<string | null> {
  const asked = npm(['view', 'commander', 'version', '--fetch-retries=0', '--fetch-timeout=20000'], folder)
  return await asked.then(
    () => null,
    ({ stderr }) => String(stderr).split('\n', 1)[0] as string,
  )
}

const problem = await registryProblem()

/** Packs a copy of the repository, because `npm pack` removes `dist` before it builds, and other tests use `dist`. */
async function pack(): Promise<string> {
  const copy = path.join(folder, 'copy')
  const left = new Set(['node_modules', 'dist', '.git', '.cache', 'coverage'])
  cpSync(repositoryRoot, copy, {
    recursive: true,
    filter: (source) => !left.has(path.relative(repositoryRoot, source)),
  })
  symlinkSync(path.join(repositoryRoot, 'node_modules'), path.join(copy, 'node_modules'))
  await npm(['pack', '--pack-destination', folder], copy)
  return path.join(folder, readdirSync(folder).find((name) => name.endsWith('.tgz')) as string)
}

/** Returns the paths of all files below a folder, relative to that folder. */
const filesOf = (root: string): string[] =>
  readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))

describe.skipIf(problem !== null)(
  `the package${problem ? ` (npm does not reach its registry: ${problem})` : ''}`,
  () => {
    const pair = pairedSets()
    let output = ''

    beforeAll(async () => {
      const tarball = await pack()
      mkdirSync(user)
      const { stdout, stderr } = await npm(['install', tarball], user)
      output = `${stdout}${stderr}`
    })

    test('installs without a warning and without a build', () => {
      expect(output).not.toMatch(/warn|error|deprecated/i)
      expect(existsSync(path.join(user, 'node_modules/typescript'))).toBe(false)
    })

    test('contains the program, the license and the pages, and no files that only a build or a debugger needs', () => {
      const files = filesOf(installed)
      expect(files).toEqual(
        expect.arrayContaining(['LICENSE', 'README.md', 'CHANGELOG.md', 'dist/dashboard/page.html']),
      )
      expect(files.filter((file) => /\.(?:map|ts|tsbuildinfo)$|^src\//.test(file))).toEqual([])
      expect(files.filter((file) => file.startsWith('test/'))).toEqual(['test/contract.md'])
      const programs = files.filter((file) => file.endsWith('.js'))
      expect(
        programs.filter((file) => readFileSync(path.join(installed, file), 'utf8').includes('sourceMappingURL')),
      ).toEqual([])
    })

    test('contains every file to which its pages link', () => {
      const pages = filesOf(installed).filter((file) => file.endsWith('.md'))
      expect(pages).toContain('docs/quick-start.md')
      const missing = pages.flatMap((page) => {
        const text = readFileSync(path.join(installed, page), 'utf8')
        const links = [...text.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map(([, link = '']) => link)
        const targets = links.map((link) => path.join(path.dirname(page), link))
        return targets
          .filter((target) => !existsSync(path.join(installed, target)))
          .map((target) => `${page}: ${target}`)
      })
      expect(missing).toEqual([])
    })

    test('has a command that prints its version and its subcommands', async () => {
      const { version } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'))
      expect((await run('npx', ['tandem', '--version'], { cwd: user })).stdout).toBe(`${version}\n`)
      expect((await run('npx', ['tandem', '--help'], { cwd: user })).stdout).toMatch(/--cluster0[\s\S]*\bcommit\b/)
    })

    test('runs a whole sync with the commands of its quick start', async () => {
      const page = readFileSync(path.join(installed, 'docs/quick-start.md'), 'utf8')
      const blocks = [...page.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, block = '']) => block)
      const [cluster0, cluster1] = [pair.source.uri, pair.destination.uri]
      await using tandem = await startTandem({ cluster0, cluster1, entry: path.join(user, 'node_modules/.bin/tandem') })

      /** Runs the first shell block of the page that contains the text, against the instance of this test. */
      const shell = async (text: string): Promise<string> => {
        const script = (blocks.find((block) => block.includes(text)) as string).replaceAll(
          /npx tandem (?:check|start|wait|progress|commit)\b/g,
          `$& --url ${tandem.url}`,
        )
        const env = { ...environment(), TANDEM_CLUSTER0: cluster0, TANDEM_CLUSTER1: cluster1 }
        return (await run('bash', ['-euc', script], { cwd: user, env })).stdout
      }
      expect(await shell('insertMany')).toBe('10000\n')
      expect(await shell('npx tandem check')).toMatch(/"findings": \[\][\s\S]*"success": true[\s\S]*canCommit after/)
      expect(await shell('updateMany')).toMatch(/^9999\n[\s\S]*"state": "RUNNING"/)
      expect(await shell('npx tandem commit')).toMatch(/"success": true[\s\S]*committed after/)
      // The instance serves the documentation to which the dashboard links.
      const entries = await fetch(`${tandem.url}/docs/troubleshooting.md`)
      expect(await entries.text()).toContain('id="verificationfailed"')
      expect(await shell('npx tandem verify')).toMatch(/^equal: 1 collections, 0 views, 9,999 and 9,999 documents/)
    })
  },
)
