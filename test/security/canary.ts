import fc from 'fast-check'

/** Generates a text that no program prints by itself, so that a secret is also found if only a part of it is shown. */
const core = fc.stringMatching(/^[a-z0-9]{16}$/).map((text) => `CaNaRy${text}`)
/** Generates characters that the code under test may forget to escape. */
const special = fc.stringMatching(/^[@:/?#%&+=,;"'\\<> é$.{}[\]-]{0,6}$/)

export interface Canary {
  text: string
  core: string
}

/** Generates a secret that is recognised even if only a part of it is shown. */
export const canary = fc
  .tuple(special, core, special)
  .map(([before, within, after]): Canary => ({ text: `${before}${within}${after}`, core: within }))

/** Returns the forms of the secrets that the text contains; empty if it contains none. */
export function formsIn(text: string, canaries: readonly Canary[]): string[] {
  return canaries.flatMap((one) => forms(one).filter((form) => text.toLowerCase().includes(form.toLowerCase())))
}

function forms({ text, core: within }: Canary): string[] {
  // Base64 depends on the offset modulo three. The first and the last characters also depend on the surrounding bytes, so they are cut off.
  const base64 = [0, 1, 2].map((offset) =>
    Buffer.from(`${' '.repeat(offset)}${within}`)
      .toString('base64')
      .slice(4, -4),
  )
  const hex = Buffer.from(within).toString('hex')
  return [within, encodeURIComponent(text), Buffer.from(text).toString('base64'), hex, ...base64]
}
