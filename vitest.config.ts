import { defineConfig } from 'vitest/config'

/**
 * By project: what its files end in before `.ts`, and how long one test may take. The files of a project share the
 * modules of a worker, which saves the imports, and the replica sets of test/support/kept-sets.ts. They restore what they
 * replace in modules and globals, and no module that they import registers hooks when it is loaded.
 * test/support/shared-worker.ts keeps a failed file with servers from failing the next one.
 */
const projects = {
  unit: { suffix: 'test', timeoutSeconds: 30 },
  mongo: { suffix: 'mongo.test', timeoutSeconds: 120 },
  cluster: { suffix: 'cluster.test', timeoutSeconds: 600 },
  long: { suffix: 'long.test', timeoutSeconds: 900 },
}

/** Tests wait for servers and processes for almost half of their time, so four workers keep two cores busy. */
const maxWorkers = 4
/** The long tests contain limits of time that a third worker could exceed. */
const maxLongWorkers = 2

/** The other suffixes end in that of the unit tests. */
const served = Object.entries(projects).flatMap(([name, { suffix }]) =>
  name === 'unit' ? [] : [`test/**/*.${suffix}.ts`],
)

/**
 * The suffix of a test tells what it needs: nothing, servers in-process, or a tandem process between two clusters. Long ones
 * need both, and minutes: `npm test` leaves them out, `npm run test:long` runs them alone.
 */
export default defineConfig({
  test: {
    pool: 'forks',
    projects: Object.entries(projects).map(([name, { suffix, timeoutSeconds }]) => ({
      test: {
        name,
        include: [`test/**/*.${suffix}.ts`],
        exclude: name === 'unit' ? served : [],
        isolate: false,
        maxWorkers: name === 'long' ? maxLongWorkers : maxWorkers,
        // Vitest wants another group for another number of workers.
        sequence: { groupOrder: name === 'long' ? 1 : 0 },
        testTimeout: timeoutSeconds * 1000,
        hookTimeout: timeoutSeconds * 1000,
        ...(name === 'unit'
          ? {}
          : {
              globalSetup: ['test/support/global-setup.ts'],
              // The long tests run each instance in a process of its own, as users do.
              setupFiles: [
                ...(name === 'long' ? [] : ['test/support/shared-hosts.ts']),
                'test/support/shared-worker.ts',
              ],
            }),
      },
    })),
  },
})
