import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { shortenCalibration, withShortCalibration } from './clock-calibration.ts'

const loop = '4883c001488945a8488b45a8483dffe0f50576e8'
/** A comparison with the same number that is not the end of the loop. */
const other = '488945a848 3dffe0f505771e'.replace(' ', '')
const shortened = '4883c001488945a8488b45a8483d3f420f0076e8'

const code = (...parts: string[]): Buffer => Buffer.from(parts.join(''), 'hex')

it('the calibration loop of a mongod is shortened, and no other byte changes', () => {
  const mongod = code(other, loop, other)
  expect(shortenCalibration(mongod)).toBe(true)
  expect(mongod.toString('hex')).toBe([other, shortened, other].join(''))
})

it.each([
  ['no loop', [other]],
  ['two loops', [loop, loop]],
  ['a loop over two variables', [loop.replace('488b45a8', '488b45b8')]],
])('a mongod with %s is left as it is', (_what, parts) => {
  const mongod = code(...parts)
  expect(shortenCalibration(mongod)).toBe(false)
  expect(mongod).toEqual(code(...parts))
})

it('the shortened mongod is a copy that can be executed, and the original stays as it is', () => {
  const entry = mkdtempSync(path.join(os.tmpdir(), 'tandem-calibration-'))
  onTestFinished(() => rmSync(entry, { recursive: true }))
  const original = path.join(entry, 'bin', 'mongod')
  mkdirSync(path.dirname(original))
  writeFileSync(original, code(loop), { mode: 0o755 })
  const copy = withShortCalibration(original)
  expect(copy).not.toBe(original)
  expect([readFileSync(copy), readFileSync(original)]).toEqual([code(shortened), code(loop)])
  expect(statSync(copy).mode & 0o111).toBe(0o111)
  expect(withShortCalibration(original)).toBe(copy)
})

it('a mongod without the loop is used itself', () => {
  const entry = mkdtempSync(path.join(os.tmpdir(), 'tandem-calibration-'))
  onTestFinished(() => rmSync(entry, { recursive: true }))
  const original = path.join(entry, 'bin', 'mongod')
  mkdirSync(path.dirname(original))
  writeFileSync(original, code(other))
  expect(withShortCalibration(original)).toBe(original)
})
