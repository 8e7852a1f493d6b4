import { defineConfig } from 'vitest/config'

/** By project: what its files end in before `.ts`, and how long one test may take. */
const projects = {
  unit: { suffix: 'test', timeoutSeconds: 30 },
  mongo: { suffix: 'mongo.test', timeoutSeconds: 120 },
  cluster: { suffix: 'cluster.test', timeoutSeconds: 600 },
  long: { suffix: 'long.test', timeoutSeconds: 900 },
}

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
    maxWorkers: 2,
    projects: Object.entries(projects).map(([name, { suffix, timeoutSeconds }]) => ({
      test: {
        name,
        include: [`test/**/*.${suffix}.ts`],
        exclude: name === 'unit' ? served : [],
        testTimeout: timeoutSeconds * 1000,
        hookTimeout: timeoutSeconds * 1000,
        ...(name === 'unit' ? {} : { globalSetup: ['test/support/global-setup.ts'] }),
      },
    })),
  },
})
