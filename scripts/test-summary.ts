/**
 * Reads the JSON reports of test runs and prints each failed test with its reason. The last line is the total:
 * `N passed, N failed`. Usage: `tsx scripts/test-summary.ts <report> …`. The exit code is 0 only if each run has at least one
 * passed test and no failed test.
 */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import process from 'node:process'

/** How many characters of a failure's reason and stack are printed. */
const REASON_CHARACTERS = 1500

/** The part of vitest's JSON reporter that is used here. */
interface Report {
  numPassedTests: number
  numFailedTests: number
  numPendingTests: number
  numTodoTests: number
  testResults: { name: string; status: string; message: string; assertionResults: TestResult[] }[]
}

interface TestResult {
  status: string
  fullName: string
  failureMessages: string[] | null
}

interface Summary {
  passed: number
  failed: number
  lines: string[]
}

function summarise(report: Report): Summary {
  // A file that cannot be loaded or whose hooks fail contains no failed test, so it counts as one failure.
  const broken = report.testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.every((test) => test.status !== 'failed'),
  )
  // The reasons are repeated here, because the output of the run itself may be far above, or truncated.
  const failed = report.testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === 'failed')
      .map(({ fullName, failureMessages }) => {
        const reasons = (failureMessages ?? []).map((reason) => reason.slice(0, REASON_CHARACTERS))
        return [`failed: ${path.relative(process.cwd(), name)}: ${fullName}`, ...reasons].join('\n')
      }),
  )
  const skipped = report.numPendingTests + report.numTodoTests
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken.length,
    lines: [
      ...failed,
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
    return { passed: 0, failed: 0, lines: [`no test report at ${file}: the test run did not complete`] }
  }
  return summarise(JSON.parse(text) as Report)
}

const files = process.argv.slice(2)
const summaries = files.map(read)
for (const line of summaries.flatMap(({ lines }) => lines)) console.log(line)
const sum = (field: 'passed' | 'failed'): number => summaries.reduce((all, summary) => all + summary[field], 0)
console.log(`${sum('passed')} passed, ${sum('failed')} failed`)
const isGreen = summaries.length > 0 && summaries.every(({ passed, failed }) => passed > 0 && failed === 0)
process.exitCode = isGreen ? 0 : 1
