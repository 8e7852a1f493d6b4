import fc from 'fast-check'

/** Letters that no program says by itself, so that also a part of a secret that shows is found. */
const core = fc.stringMatching(/^[a-z0-9]{16}$/).map((text) => `CaNaRy${text}`)
/** What an escape may be forgotten for. */
const special = fc.stringMatching(/^[@:/?#%&+=,;"'\\<> é$.{}[\]-]{0,6}$/)

export interface Canary {
  text: string
  core: string
}

/** A secret that is recognised wherever a part of it shows. */
export const canary = fc
  .tuple(special, core, special)
  .map(([before, within, after]): Canary => ({ text: `${before}${within}${after}`, core: within }))

/** The forms in which some of the secrets stand in the text; empty when none does. */
export function formsIn(text: string, canaries: readonly Canary[]): string[] {
  return canaries.flatMap((one) => forms(one).filter((form) => text.toLowerCase().includes(form.toLowerCase())))
}

function forms({ text, core: within }: Canary): string[] {
  // Of its bytes at each offset within three; the first and the last characters depend on what stands around.
  const base64 = [0, 1, 2].map((offset) =>
    Buffer.from(`${' '.repeat(offset)}${within}`)
      .toString('base64')
      .slice(4, -4),
  )
  const hex = Buffer.from(within).toString('hex')
  return [within, encodeURIComponent(text), Buffer.from(text).toString('base64'), hex, ...base64]
}
