import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The root of the repository. */
export const root = fileURLToPath(new URL('../../', import.meta.url))

/** Returns the text of a page, which is given by its path in the repository. */
export function textOf(page: string): string {
  return readFileSync(new URL(`../../${page}`, import.meta.url), 'utf8')
}

/** Returns the anchors that GitHub derives from the headings of a page. */
export function anchorsOf(page: string): string[] {
  const text = textOf(page).replaceAll(/^```[\s\S]*?^```/gm, '')
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  )
}
