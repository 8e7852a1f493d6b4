import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { repositoryRoot } from '../support/mongo-binaries.ts'

/** Tests that the workflow runs only existing programs, because it cannot be run on the machine where tandem is developed. */

const read = (file: string): string => readFileSync(path.join(repositoryRoot, file), 'utf8')
const { jobs } = parse(read('.github/workflows/test.yml')) as {
  jobs: Record<string, { strategy?: { matrix: Record<string, unknown[]> }; steps: { run?: string }[] }>
}
const { scripts, engines } = JSON.parse(read('package.json')) as {
  scripts: Record<string, string>
  engines: { node: string }
}
const commands = Object.values(jobs).flatMap(({ steps }) => steps.flatMap(({ run }) => (run ? [run] : [])))

test('each npm script and each program that it runs exists', () => {
  const named = commands.flatMap((command) => /^npm (?:run )?(\w+)$/.exec(command)?.[1] ?? [])
  expect(named).toEqual(['ci', 'lint', 'typecheck', 'ci', 'test'])
  for (const name of named) if (name !== 'ci') expect(Object.keys(scripts)).toContain(name)
  const programs = commands.flatMap((command) => /^npx tsx (\S+)/.exec(command)?.[1] ?? [])
  expect(programs).toHaveLength(1)
  for (const program of programs) expect(existsSync(path.join(repositoryRoot, program))).toBe(true)
})

test('the workflow covers the oldest supported release of Node.js and several releases of MongoDB', () => {
  const { node = [], mongodb = [], include = [] } = jobs['tests']?.strategy?.matrix ?? {}
  expect(node[0]).toBe(Number(/\d+/.exec(engines.node)?.[0]))
  const added = (include as { mongodb: string }[]).map((one) => one.mongodb)
  expect([...mongodb, ...added]).toEqual(['6.0', '7.0', '8.0'])
})
