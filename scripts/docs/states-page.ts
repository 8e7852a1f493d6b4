import { electionMachine } from '../../machines/election.ts'
import { instanceMachine } from '../../machines/instance.ts'
import { syncMachine } from '../../machines/sync.ts'
import { renderMachine } from './state-charts.ts'

/** The text of docs/states.md. */
export const statesPath = 'docs/states.md'

export function statesPage(): string {
  return `# State charts

Generated from \`machines/\` by \`npm run docs:machines\`; a test fails when this page is older than they are. Do not edit it.

States, events, guards (in brackets) and actors are named as in the code. Where several transitions leave a state by the same event,
the first whose guard holds is taken; _otherwise_ is the last of those that need no event. \`X done\` and \`X failed\` are the ends of
the actor X; \`after X\` is the end of the delay X. A state that stands in a chart under a path (\`syncing.replicating\`) is outside of what the chart shows. Actions are left
out. What the coordinator does in each state of \`sync\` stands in the code as \`meta.step\`. What the states are for stands at the top of each machine's file, and in [architecture.md](architecture.md#states).

${[syncMachine, instanceMachine, electionMachine].map((machine) => renderMachine(machine)).join('\n')}`
}
