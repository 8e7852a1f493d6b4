import { defineConfig } from 'vitest/config'

const project = (name: string, suffix: string, timeoutSeconds: number) => ({
  test: {
    name,
    include: [`test/**/*.${suffix}.ts`],
    exclude: name === 'unit' ? ['test/**/*.mongo.test.ts', 'test/**/*.cluster.test.ts'] : [],
    testTimeout: timeoutSeconds * 1000,
    hookTimeout: timeoutSeconds * 1000,
    ...(name === 'unit' ? {} : { globalSetup: ['test/support/global-setup.ts'] }),
  },
})

/** The suffix of a test tells what it needs: nothing, one pair of servers in-process, or a tandem process between two clusters. */
export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 2,
    projects: [
      project('unit', 'test', 30),
      project('mongo', 'mongo.test', 120),
      project('cluster', 'cluster.test', 600),
    ],
  },
})
