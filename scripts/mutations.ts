import { parseArgs } from 'node:util'
import { runMutation } from '../test/support/mutation-run.ts'
import { mutations, type Phase, phases } from '../test/support/mutations.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'

/**
 * Every single corruption in every phase of a migration, of which `npm test` runs a fixed sample:
 *   npm run mutations                                 all of them
 *   npm run mutations -- --phases hashing,applying    some phases
 *   npm run mutations -- --only 'lost'                those with this in their name
 *   npm run mutations -- --from 20                    from the twentieth on
 * Each must be reported, alone, and mended by repair; or be gone before the verdict, for the reason that is printed.
 */
const { values } = parseArgs({
  options: {
    phases: { type: 'string', default: phases.join(',') },
    only: { type: 'string', default: '' },
    from: { type: 'string', default: '1' },
  },
})
const chosen = phases.filter((phase) => values.phases.split(',').includes(phase))
const counts = { reported: 0, mended: 0, failed: 0 }

// Async disposal is what ends the servers, also when a run throws.
await using source = await startReplicaSet()
await using destination = await startReplicaSet()
console.log(`${mutations.length} corruptions, in the phases ${chosen.join(', ')}`)
for (const phase of chosen) {
  for (const [at, mutation] of mutations.entries()) {
    if (at + 1 < Number(values.from) || !mutation.name.includes(values.only)) continue
    if (!(mutation.phases ?? phases).includes(phase as Phase)) continue
    const begun = performance.now()
    const name = `${phase} ${at + 1}: ${mutation.name}`
    try {
      const outcome = await runMutation({ source, destination }, phase, mutation)
      counts[outcome] += 1
      const reason = outcome === 'mended' ? `, for ${mutation.mended?.[phase]}` : ''
      console.log(`ok   ${name} (${((performance.now() - begun) / 1_000).toFixed(1)} s) ${outcome}${reason}`)
    } catch (error) {
      counts.failed += 1
      console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
}
console.log(`${counts.reported} reported, ${counts.mended} mended before the verdict, ${counts.failed} failed`)
process.exitCode = counts.failed > 0 ? 1 : 0
