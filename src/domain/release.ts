/**
 * Returns the release series of a server's version, such as "6.0" for "6.0.27"; empty if the version has another form.
 */
export function seriesOf(version: string): string {
  return /^\d+\.\d+/.exec(version)?.[0] ?? ''
}

/**
 * True if `version` belongs to an older release series than `than`: the series of 8.0.17 is older than that of 8.2.0.
 */
export function isOlderSeries(version: string, than: string): boolean {
  const [major = 0, minor = 0] = seriesOf(version).split('.').map(Number)
  const [otherMajor = 0, otherMinor = 0] = seriesOf(than).split('.').map(Number)
  return major === otherMajor ? minor < otherMinor : major < otherMajor
}
