/** Formats and rounds values for display. */

/**
 * @typedef {{ text: string, state?: string, share?: number }} Cell the content of a table cell; `share` is the value of
 * its bar, 0 to 1
 */

const byteUnits = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']

/**
 * Formats with about three digits, in decimal units.
 * @param {number} value
 */
export function bytes(value) {
  let unit = 0
  let shown = value
  while (shown >= 999.5 && unit < byteUnits.length - 1) {
    shown /= 1000
    unit += 1
  }
  const digits = unit === 0 || shown >= 99.95 ? 0 : 1
  return `${shown.toFixed(digits)} ${byteUnits[unit]}`
}

/** @param {number} value */
export function count(value) {
  return Math.round(value).toLocaleString('en')
}

/**
 * Formats a duration in its longest unit that is not 0, and in the next shorter unit unless that is 0.
 * @param {number} seconds
 */
export function duration(seconds) {
  const whole = Math.ceil(seconds)
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3_600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ]
  const first = parts.findIndex(([amount]) => amount > 0)
  if (first === -1) return '0 s'
  const shown = parts.slice(first, first + 2).filter(([amount], at) => at === 0 || amount > 0)
  return shown.map(([amount, unit]) => `${amount} ${unit}`).join(' ')
}

/**
 * Rounds down: the result is 100 only if nothing is left.
 * @param {number} done
 * @param {number} all
 */
export function percent(done, all) {
  if (all <= 0) return 0
  return done >= all ? 100 : Math.min(99.9, Math.floor((done * 1_000) / all) / 10)
}

/** @param {number} at Unix time in milliseconds */
export function clock(at) {
  return new Date(at).toLocaleTimeString('en-GB')
}

/** @param {readonly string[]} names */
export function enumerated(names) {
  return names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}
