/** @import { Moment } from './history.js' */
import { clock } from './format.js'
import { create, createSvg, setText } from './page.js'

/** A chart over time: a line, the area below it, and the current value in large type. */

const width = 600
const height = 120
/**
 * Time ranges in minutes. The chart shows the shortest one that holds all data of the period that the user has chosen.
 */
const windows = [2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1_440]

export class Chart {
  #title
  #format
  #svg = createSvg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img' })
  #area = createSvg('path', { class: 'area' })
  #line = createSvg('path', { class: 'line' })
  #cursor = createSvg('line', { class: 'cursor', y1: '0', y2: String(height) })
  #value = create('span', { className: 'chart-value' })
  #top = create('span', { className: 'chart-top', attributes: { 'aria-hidden': 'true' } })
  #since = create('span')
  /** @type {readonly Moment[]} */
  #moments = []
  #end = 0
  #spanMS = 0
  /** Position of the pointer as a share of the width, 0 to 1; null outside the plot. @type {number | null} */
  #pointed = null

  /**
   * @param {HTMLElement} place
   * @param {{ title: string, format: (value: number) => string }} options
   */
  constructor(place, { title, format }) {
    this.#title = title
    this.#format = format
    const half = { x1: '0', x2: String(width), y1: String(height / 2), y2: String(height / 2) }
    this.#svg.append(createSvg('line', { class: 'grid', ...half }), this.#area, this.#line, this.#cursor)
    this.#svg.setAttribute('aria-label', `${title}: not known yet`)
    const heading = create('h3', { text: title })
    const head = create('div', { className: 'chart-head' })
    head.append(heading, this.#value)
    const plot = create('div', { className: 'plot' })
    plot.append(this.#svg, this.#top)
    const axis = create('div', { className: 'axis', attributes: { 'aria-hidden': 'true' } })
    axis.append(this.#since, create('span', { text: 'now' }))
    place.className = 'chart'
    place.append(head, plot, axis)
    plot.addEventListener('pointermove', (event) => {
      const box = plot.getBoundingClientRect()
      this.#point((event.clientX - box.left) / box.width)
    })
    plot.addEventListener('pointerleave', () => this.#point(null))
  }

  /**
   * @param {readonly Moment[]} all oldest first
   * @param {number} now milliseconds since the epoch
   * @param {number} mostMinutes older moments are not shown
   */
  show(all, now, mostMinutes) {
    const moments = all.filter(({ at }) => at >= now - mostMinutes * 60_000)
    const known = moments.flatMap(({ value }) => (value === null ? [] : [value]))
    const oldest = moments[0]?.at ?? now
    const minutes = windows.find((one) => now - oldest <= one * 60_000) ?? mostMinutes
    this.#moments = moments
    this.#end = now
    this.#spanMS = minutes * 60_000
    const highest = known.reduce((one, other) => Math.max(one, other), 0)
    const top = ceiling(highest)
    const paths = pathsOf(
      moments,
      (moment) => this.#x(moment.at),
      (value) => height - 2 - (value / top) * (height - 8),
    )
    this.#line.setAttribute('d', paths.line)
    this.#area.setAttribute('d', paths.area)
    setText(this.#top, known.length > 0 ? this.#format(top) : '')
    setText(this.#since, `${minutes < 60 ? `${minutes} min` : `${minutes / 60} h`} ago`)
    const present = moments.at(-1)?.value ?? null
    const words = present === null ? 'not known now' : `${this.#format(present)} now`
    const most = known.length > 0 ? `, at most ${this.#format(highest)} in the last ${periodOf(minutes)}` : ''
    this.#svg.setAttribute('aria-label', `${this.#title}: ${words}${most}`)
    this.#showValue()
  }

  /** @param {number} at */
  #x(at) {
    return width - ((this.#end - at) / this.#spanMS) * width
  }

  /** @param {number | null} share of the width */
  #point(share) {
    this.#pointed = share
    this.#showValue()
  }

  /** Shows the current value, or the value at the pointer. */
  #showValue() {
    const at = this.#pointed === null ? null : this.#end - (1 - this.#pointed) * this.#spanMS
    const near = at === null ? this.#moments.at(-1) : this.#moments.findLast((moment) => moment.at <= at)
    const value = near?.value ?? null
    const shown = value === null ? '–' : this.#format(value)
    setText(this.#value, at === null ? shown : `${clock(at)}  ${shown}`)
    const x = this.#pointed === null ? '-9' : String(this.#pointed * width)
    this.#cursor.setAttribute('x1', x)
    this.#cursor.setAttribute('x2', x)
  }
}

/** @param {number} minutes */
function periodOf(minutes) {
  if (minutes < 60) return `${minutes} minutes`
  return minutes === 60 ? 'hour' : `${minutes / 60} hours`
}

/**
 * Rounds up to 1, 2 or 5 times a power of ten, so that the scale does not change with every sample.
 * @param {number} value
 */
function ceiling(value) {
  if (value <= 1) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return ([1, 2, 5, 10].find((one) => one * power >= value) ?? 10) * power
}

/**
 * @param {readonly Moment[]} moments
 * @param {(moment: Moment) => number} x
 * @param {(value: number) => number} y
 */
function pathsOf(moments, x, y) {
  let line = ''
  let area = ''
  /** @type {string[]} */
  let run = []
  let [first, last] = [0, 0]
  const finish = () => {
    if (run.length > 0) {
      line += `M${run.join('L')}`
      area += `M${first},${height}L${run.join('L')}L${last},${height}Z`
    }
    run = []
  }
  for (const moment of moments) {
    if (moment.value === null) finish()
    else {
      last = Math.round(x(moment) * 10) / 10
      if (run.length === 0) first = last
      run.push(`${last},${y(moment.value).toFixed(1)}`)
    }
  }
  finish()
  return { line, area }
}
