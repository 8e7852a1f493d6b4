import { collectionCopyMachine } from '../../machines/collection-copy.ts'
import { electionMachine } from '../../machines/election.ts'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import { instanceMachine } from '../../machines/instance.ts'
import { syncMachine } from '../../machines/sync.ts'
import { verificationMachine } from '../../machines/verification.ts'
import { renderMachine } from './state-charts.ts'

/** Path of the generated page. */
export const statesPath = 'docs/states.md'

export function statesPage(): string {
  return `# State charts

Generated from \`machines/\` by \`npm run docs:machines\`. Do not edit this page: a test fails if it differs from the machines.

The names of states, events, guards (in brackets) and actors are those of the code. If several transitions leave a state on the same event,
the first one whose guard holds is taken; _otherwise_ marks a transition without a guard and without an event. The machine takes it when it can take no other. \`X done\` means that
the actor X has ended, and \`X failed\` that it has ended with an error; \`after X\` means that the delay X has passed. A state whose name is a path (\`syncing.replicating\`) belongs to another chart. The charts omit
actions. In the code, \`meta.step\` names what the coordinator does in each state of \`sync\`. The purpose of each state is described at the top of the machine's file and in [architecture.md](architecture.md#states).

${[syncMachine, instanceMachine, collectionCopyMachine, eventApplicationMachine, verificationMachine, electionMachine].map((machine) => renderMachine(machine)).join('\n')}`
}
