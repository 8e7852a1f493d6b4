import { mkdtempSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { dataRoot } from './data-root.ts'
import { guardPath } from './guarded-process.ts'
import { repositoryRoot } from './mongo-binaries.ts'

let bundled: Promise<string> | undefined

/**
 * Returns the path of the mongos stand-in as one JavaScript file, which this process bundles once. Node starts it in a seventh
 * of the processor time that the TypeScript modules need. The stand-in uses only the BSON types of the driver, so the bundle
 * contains `bson` in place of `mongodb`.
 */
export function bundledStandIn(): Promise<string> {
  bundled ??= bundle()
  return bundled
}

async function bundle(): Promise<string> {
  const folder = mkdtempSync(path.join(dataRoot(), 'tandem-mongos-'))
  guardPath(folder)
  const outfile = path.join(folder, 'mongos-main.mjs')
  await build({
    absWorkingDir: repositoryRoot,
    entryPoints: [fileURLToPath(new URL('./mongos/mongos-main.ts', import.meta.url))],
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    alias: { mongodb: 'bson' },
    logLevel: 'warning',
  })
  return outfile
}
