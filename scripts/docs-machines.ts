/** Writes docs/states.md from `machines/`: `npm run docs:machines`. */
import { writeFileSync } from 'node:fs'
import { statesPage, statesPath } from './docs/states-page.ts'

writeFileSync(new URL(`../${statesPath}`, import.meta.url), statesPage())
console.log(`${statesPath} written`)
