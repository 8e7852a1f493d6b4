/**
 * Reads the JSON report of a test run and prints `N passed, N failed` as its last line: `tsx scripts/test-summary.ts
 * <report>`. Exit code 0 only when something passed and nothing failed.
 */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import process from 'node:process'

/** The part of vitest's JSON reporter that is used here. */
interface Report {
  numPassedTests: number
  numFailedTests: number
  numPendingTests: number
  numTodoTests: number
  testResults: { name: string; status: string; message: string; assertionResults: { status: string }[] }[]
}

interface Summary {
  passed: number
  failed: number
  lines: string[]
}

function summarise(report: Report): Summary {
  // A file that cannot be loaded, or whose hooks fail, has no failed test to its name; it counts as one.
  const broken = report.testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.every((test) => test.status !== 'failed'),
  )
  const skipped = report.numPendingTests + report.numTodoTests
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken.length,
    lines: [
      ...broken.map(({ name, message }) => {
        const reason = message.split('\n')[0] || 'a hook failed'
        return `${path.relative(process.cwd(), name)} failed outside its tests: ${reason}`
      }),
      ...(skipped > 0 ? [`${skipped} skipped`] : []),
    ],
  }
}

function read(file: string): Summary {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return { passed: 0, failed: 0, lines: [`no test report at ${file}: the tests did not run to their end`] }
  }
  return summarise(JSON.parse(text) as Report)
}

const { passed, failed, lines } = read(process.argv[2] ?? '.cache/test-report.json')
for (const line of lines) console.log(line)
console.log(`${passed} passed, ${failed} failed`)
process.exitCode = passed > 0 && failed === 0 ? 0 : 1
