import { parseArgs } from 'node:util'
import { type Break, breaks } from '../test/simulation/breaks.ts'
import { smallWorld, type WorldOptions } from '../test/simulation/options.ts'
import { type SimulationResult, simulate } from '../test/simulation/run.ts'

/**
 * Runs simulated worlds, one for each seed; `npm test` runs a fixed sample of small ones:
 *   npm run simulate -- --seeds 1000 --from 1                               small ones
 *   npm run simulate -- --seeds 1 --shards 1000 --instances 100 --steps 1000000 --costs   a large one, with the load on its metadata store
 *   npm run simulate -- --seeds 200 --definitions 8 --rate 100 --faults 1.5    many changes of definitions at a time
 *   npm run simulate -- --seeds 200 --copies all                            collections begin uncopied in all worlds (or in `half` of them, or in `none`)
 *   npm run simulate -- --seeds 200 --copies none --verifies --rate 4      several instances compare ranges of the first pass
 *   npm run simulate -- --seeds 20 --break no-fence                         a mutation, which at least one seed must detect
 *   npm run simulate -- --seeds 20 --break plan-unfenced --guarded          the same delayed messages, but statements keep all conditions, so no seed may fail
 * With the same options, a seed that fails does so again at the same step.
 */
const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '10' },
    from: { type: 'string', default: '1' },
    shards: { type: 'string', default: String(smallWorld.shards) },
    instances: { type: 'string', default: String(smallWorld.instances) },
    steps: { type: 'string', default: String(smallWorld.steps) },
    documents: { type: 'string', default: String(smallWorld.documents) },
    rate: { type: 'string', default: String(smallWorld.rate) },
    definitions: { type: 'string', default: String(smallWorld.definitionRate) },
    faults: { type: 'string', default: String(smallWorld.faultRate) },
    copies: { type: 'string', default: 'half' },
    verifies: { type: 'boolean', default: false },
    break: { type: 'string' },
    guarded: { type: 'boolean', default: false },
    costs: { type: 'boolean', default: false },
  },
})
const mutation = (values.break ?? null) as Break | null
const numbers = [values.seeds, values.from, values.shards, values.instances, values.steps, values.documents].map(Number)
if (!numbers.every((one) => Number.isInteger(one) && one > 0) || (mutation && !breaks.includes(mutation))) {
  console.error(`error: counts are whole numbers of at least 1, and --break is one of ${breaks.join(', ')}`)
  process.exit(2)
}
const [seeds, from, shards, instances, steps, documents] = numbers as [number, number, number, number, number, number]
const world = {
  ...smallWorld,
  shards,
  instances,
  steps,
  documents,
  rate: Number(values.rate),
  definitionRate: Number(values.definitions),
  faultRate: Number(values.faults),
  verifies: values.verifies,
}

function describe(seed: number, result: SimulationResult, cpuSeconds: number): string {
  const faults = [...result.faults].reduce((sum, [, count]) => sum + count, 0)
  const figures =
    `${result.steps} steps, ${result.seconds.toFixed(0)} s simulated, ${result.events} events, ${faults} faults, ` +
    `${result.differences} differences reported, ${result.shared} batches shared, ${result.helped} ranges compared for the coordinator, idle after ${result.restSeconds.toFixed(1)} s, ${cpuSeconds.toFixed(2)} s of CPU`
  return result.violation ? `FAIL seed ${seed}: ${result.violation} (${figures})` : `ok   seed ${seed}: ${figures}`
}

function showCosts({ costs, seconds }: SimulationResult): void {
  for (const [what, { commands, documents: touched }] of [...costs].sort()) {
    console.log(
      `     ${what}: ${(commands / seconds).toFixed(2)} commands/s, ${(touched / seconds).toFixed(1)} documents/s`,
    )
  }
}

let [passed, failed] = [0, 0]
for (let seed = from; seed < from + seeds; seed++) {
  const copies = values.copies === 'half' ? seed % 2 === 0 : values.copies === 'all'
  const options: WorldOptions = { ...world, seed, copies, breaks: mutation, guarded: values.guarded }
  const begun = process.cpuUsage()
  const result = await simulate(options)
  const { user, system } = process.cpuUsage(begun)
  console.log(describe(seed, result, (user + system) / 1e6))
  if (values.costs) showCosts(result)
  if (result.violation) failed += 1
  else passed += 1
}
console.log(`${passed} passed, ${failed} failed`)
// A finished world leaves promises and timers that never resolve, so the process must exit explicitly.
process.exit(failed === 0 ? 0 : 1)
