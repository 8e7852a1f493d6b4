import { Marked, type Tokens } from 'marked'

/** Renders a page of `docs/` as HTML. The result has no scripts, and loads nothing but two style sheets. */

/** @param names the pages that are served; links to other files of the repository are shown as text */
export function renderDocsPage(name: string, markdown: string, names: readonly string[]): string {
  const title = /^# (.+)$/m.exec(markdown)?.[1] ?? name
  const body = rendererOf(names).parse(markdown, { async: false })
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>${escaped(title)} · tandem</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="/dashboard/base.css">
    <link rel="stylesheet" href="/dashboard/docs.css">
  </head>
  <body class="docs">
    <a class="skip" href="#main">Skip to the page</a>
    <header>
      <p><a href="/">Dashboard</a></p>
      <nav aria-label="Documentation">
        <details>
          <summary>All pages</summary>
          <ul>${names.map((one) => `<li><a href="${one}"${one === name ? ' aria-current="page"' : ''}>${one}</a></li>`).join('')}</ul>
        </details>
      </nav>
    </header>
    <main id="main">
${body}
    </main>
  </body>
</html>
`
}

function rendererOf(names: readonly string[]): Marked {
  return new Marked({
    gfm: true,
    renderer: {
      heading({ tokens, depth, text }: Tokens.Heading): string {
        return `<h${depth} id="${escaped(anchorOf(text))}">${this.parser.parseInline(tokens)}</h${depth}>\n`
      },
      // Raw HTML is shown as text.
      html({ text }: Tokens.HTML | Tokens.Tag): string {
        return escaped(text)
      },
      image({ text }: Tokens.Image): string {
        return `<em>${escaped(text)}</em>`
      },
      link({ href, tokens }: Tokens.Link): string {
        const text = this.parser.parseInline(tokens)
        const [file = ''] = href.split('#', 1)
        if (file !== '' && !names.includes(file) && !/^https?:/.test(href)) return text
        return `<a href="${escaped(href)}">${text}</a>`
      },
      // A region that scrolls must be reachable with the keyboard.
      code({ text }: Tokens.Code): string {
        return `<pre tabindex="0"><code>${escaped(text)}</code></pre>\n`
      },
      table({ header, rows }: Tokens.Table): string {
        const row = (cells: Tokens.TableCell[], tag: 'th scope="col"' | 'td'): string =>
          `<tr>${cells.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag.slice(0, 2)}>`).join('')}</tr>`
        const body = rows.map((cells) => row(cells, 'td')).join('\n')
        return `<div class="wide" role="group" aria-label="Table" tabindex="0"><table><thead>${row(header, 'th scope="col"')}</thead><tbody>${body}</tbody></table></div>\n`
      },
    },
  })
}

/** The anchor that GitHub derives from a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
