import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { setup } from 'xstate'
import { renderMachine } from '../../scripts/docs/state-charts.ts'
import { statesPage, statesPath } from '../../scripts/docs/states-page.ts'

test('docs/states.md matches the state machines; if not, run npm run docs:machines', () => {
  expect(readFileSync(new URL(`../../${statesPath}`, import.meta.url), 'utf8')).toBe(statesPage())
})

test('every guard has a name', () => {
  expect(statesPage()).not.toContain('without a name')
})

/** A machine with each kind of transition: out of a nested state, within a nested state, for all states, and without a target. */
const small = setup({ guards: { isLate: () => true } }).createMachine({
  id: 'small',
  initial: 'off',
  on: { smash: '.broken' },
  states: {
    off: { on: { press: [{ guard: 'isLate', target: 'broken' }, { target: 'on' }] } },
    on: {
      tags: 'SHINING',
      initial: 'dim',
      on: { dust: {}, reset: { target: 'on', reenter: true } },
      states: { dim: { on: { press: 'bright' } }, bright: { on: { press: '#small.off' } } },
    },
    broken: {},
  },
})

test('the charts contain every transition at the level of its state', () => {
  const text = renderMachine(small)
  const [whole = '', inner = ''] = text.split('### small: on')
  expect(whole.split('\n').filter((line) => line.includes('-->'))).toEqual([
    '  [*] --> off',
    '  anyState --> broken: smash',
    '  off --> broken: press [isLate]',
    '  off --> on: press',
    '  on --> on: reset',
    '  on --> off: press',
  ])
  expect(whole).toContain('| on | SHINING |  | dust |')
  expect(inner.split('\n').filter((line) => line.includes('-->'))).toEqual([
    '  [*] --> on_dim',
    '  on_dim --> on_bright: press',
    '  on_bright --> off: press',
  ])
})
