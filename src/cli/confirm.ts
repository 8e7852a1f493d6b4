import { createInterface } from 'node:readline'
import { printable } from '../domain/printable.ts'
import type { ClientRequest } from './client-options.ts'
import { type Sample, takeSample } from './samples.ts'
import { headline } from './view.ts'

/** Commands that an operator cannot take back are confirmed at a terminal. Scripts have none and are not asked. */

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
    'The remaining changes are applied, both clusters are compared (unless verification is off), and the destination is',
    'opened for writes. Stop all writers of the source first. Until the commit is decided, shortly before canWrite, tandem',
    'abort ends it. Afterwards only a sync that was started as reversible leads back.',
  ]
}

function reverseEffect(source: string, destination: string): string[] {
  return [
    `  now   ${source} -> ${destination}`,
    `  then  ${destination} -> ${source}`,
    'All changes that were made on the present destination since canWrite are applied to the former source.',
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
