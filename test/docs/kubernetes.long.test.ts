import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runQuietly } from '../support/python-wheels.ts'
import { textOf } from './pages.ts'

/**
 * The manifest of docs/deploy.md conforms to the schemas of Kubernetes. The Python package kubernetes-validate contains
 * these schemas. The tests are skipped if pip cannot install it. They need no Kubernetes and do not run the manifest.
 */

const run = promisify(execFile)
const requirement = 'kubernetes-validate==1.37.0'
const folder = mkdtempSync(path.join(tmpdir(), 'tandem-kubernetes-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const modules = path.join(folder, 'modules')

/** Returns null if the package is installed, otherwise the reason why it is not. */
async function installProblem(): Promise<string | null> {
  const pip = ['-m', 'pip', 'install', '--quiet', '--only-binary', ':all:', '--target', modules]
  return await runQuietly('python3', [...pip, requirement]).then(
    () => null,
    ({ message }: Error) => message,
  )
}

const problem = await installProblem()

describe.skipIf(problem !== null)(`the manifest${problem ? ` (no validator: ${problem})` : ''}`, () => {
  const manifests = [...textOf('docs/deploy.md').matchAll(/^```yaml\n([\s\S]*?)^```/gm)]
    .map(([, block = '']) => block)
    .filter((block) => /^kind:/m.test(block))

  /** Resolves with what the validator prints. With `--strict` it accepts no field that the schema does not have. */
  async function validate(manifest: string, release: string): Promise<string> {
    const file = path.join(folder, 'manifest.yaml')
    writeFileSync(file, manifest)
    const args = ['-m', 'kubernetes_validate', '--strict', '-k', release, file]
    const env = { ...process.env, PYTHONPATH: modules }
    return await run('python3', args, { env }).then(
      ({ stdout }) => stdout,
      ({ stdout, message }: Error & { stdout?: string }) => stdout || message,
    )
  }

  let manifest = ''
  beforeAll(() => {
    expect(manifests).toHaveLength(1)
    manifest = manifests[0] as string
  })

  test.each(['1.25', '1.31', '1.37'])('is valid for Kubernetes %s', async (release) => {
    expect(await validate(manifest, release)).toContain(
      `passed for resource statefulset/tandem against version ${release}`,
    )
  })

  test.each([
    ['failureThreshold: 6', 'failureTreshold: 6', /did not validate .*'failureTreshold' was unexpected/],
    ['replicas: 2', 'replicas: two', /did not validate .*spec\.replicas/],
  ])('would not be valid with %s changed to %s', async (before, after, message) => {
    expect(manifest).toContain(before)
    expect(await validate(manifest.replace(before, after), '1.37')).toMatch(message)
  })
})
