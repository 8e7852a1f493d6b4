import { createInterface } from 'node:readline'
import { printable } from '../domain/printable.ts'
import type { ClientRequest } from './client-options.ts'
import { type Sample, takeSample } from './samples.ts'
import { headline } from './view.ts'

/** On a terminal, the operator must confirm commit and reverse. Scripts run without a terminal and need not. */

/** Shows these lines to the operator and asks for confirmation. Resolves to true if the command may be sent. */
export type Confirm = (lines: readonly string[]) => Promise<boolean>

/** Returns lines that tell the operator the current state and what the command will do. */
export async function announcement(request: ClientRequest): Promise<string[]> {
  const sample = await takeSample(request)
  const mapping = sample.answered.find(({ directionMapping }) => directionMapping !== null)?.directionMapping
  const source = mapping?.Source ?? 'the source'
  const destination = mapping?.Destination ?? 'the destination'
  const effect = request.command === 'reverse' ? reverseEffect(source, destination) : commitEffect(source, destination)
  const isAnswered = sample.answered.length > 0
  const state = isAnswered ? headline(sample) : 'no instance has reported its progress'
  return [`${request.command}: ${state}`, ...effect, ...missing(sample)].map(printable)
}

function commitEffect(source: string, destination: string): string[] {
  return [
    `  from  ${source}`,
    `  to    ${destination}`,
    'tandem applies the remaining changes, compares both clusters (unless verification is off), and enables writes on',
    'the destination. Stop all writes on the source first. You can end the commit with tandem abort until it is',
    'decided, shortly before canWrite. After that, you can return to the source only if the sync was started as',
    'reversible.',
  ]
}

function reverseEffect(source: string, destination: string): string[] {
  return [
    `  now   ${source} -> ${destination}`,
    `  then  ${destination} -> ${source}`,
    'tandem applies all changes made on the current destination since canWrite to the current source.',
  ]
}

function missing({ unanswered }: Sample): string[] {
  return unanswered.map(({ why }) => `warning: ${why}`)
}

/** Asks for `yes` at a terminal. Any other line, Ctrl-C and the end of the input mean no. */
export function askForYes(
  lines: readonly string[],
  { input, output }: { input: NodeJS.ReadableStream; output: NodeJS.WritableStream },
): Promise<boolean> {
  output.write(`${lines.join('\n')}\n`)
  const reader = createInterface({ input, output })
  return new Promise((resolve) => {
    const onUnanswered = (): void => {
      output.write('\n')
      resolve(false)
    }
    reader.once('close', onUnanswered)
    reader.question('Type yes to continue: ', (answer) => {
      reader.off('close', onUnanswered)
      reader.close()
      resolve(answer.trim().toLowerCase() === 'yes')
    })
  })
}
