/** Writes docs/api.md from the app's OpenAPI document: `npm run docs:api`. */
import { writeFileSync } from 'node:fs'
import { apiPage, apiPath } from './docs/api-page.ts'

writeFileSync(new URL(`../${apiPath}`, import.meta.url), await apiPage())
console.log(`${apiPath} written`)
