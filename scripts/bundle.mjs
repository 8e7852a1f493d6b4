// @ts-check
import { cpSync, rmSync } from 'node:fs'
import { build } from 'esbuild'

/**
 * Writes the program of the package: `dist/main.js`, its chunks and the dashboard. Node loads them in about two thirds of
 * the time that it takes to load the several hundred modules of `src` and `machines`. Packages are not bundled, so that
 * their updates and their optional packages work as usual. Names are not shortened, because the stack traces in logs name
 * functions.
 */
rmSync('dist/chunks', { recursive: true, force: true })
await build({
  entryPoints: ['src/main.ts'],
  outdir: 'dist',
  chunkNames: 'chunks/[name]-[hash]',
  bundle: true,
  splitting: true,
  packages: 'external',
  format: 'esm',
  platform: 'node',
  target: 'node20',
  logLevel: 'warning',
})
// The bundle reads the dashboard from `dist/dashboard`. The modules that tsc emits read it from `dist/src/dashboard`.
for (const to of ['dist/dashboard', 'dist/src/dashboard']) cpSync('src/dashboard', to, { recursive: true })
