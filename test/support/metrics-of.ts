/** Returns the current values of an instance's `/metrics`, by metric name with labels. */
export async function metricsOf(url: string): Promise<Map<string, number>> {
  const response = await fetch(`${url}/metrics`)
  const lines = (await response.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}
