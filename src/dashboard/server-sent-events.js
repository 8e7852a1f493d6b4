/**
 * Yields the server-sent events of a response until it ends. (An EventSource cannot send a token.)
 * @param {Response} response
 * @returns {AsyncGenerator<{ name: string, data: string }>}
 */
export async function* eventsOf(response) {
  const reader = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body)
    .pipeThrough(new TextDecoderStream())
    .getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const events = (rest + value).split('\n\n')
    rest = events.pop() ?? ''
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? []
      if (name !== undefined && data !== undefined) yield { name, data }
    }
  }
}
