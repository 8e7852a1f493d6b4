import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Watermark } from '../../src/domain/watermark.ts'

type Step =
  | { do: 'hold'; lane: number }
  | { do: 'routed' }
  | { do: 'sending'; lane: number }
  | { do: 'acknowledged'; lane: number }

const lanes = 3
const lane = fc.integer({ min: 0, max: lanes - 1 })
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: lane.map((lane) => ({ do: 'hold' as const, lane })) },
  { weight: 2, arbitrary: fc.constant({ do: 'routed' as const }) },
  { weight: 2, arbitrary: lane.map((lane) => ({ do: 'sending' as const, lane })) },
  { weight: 2, arbitrary: lane.map((lane) => ({ do: 'acknowledged' as const, lane })) },
)

/** The simplest correct model of the watermark. It tracks every event separately, with its batch, its lane and its state. */
class Model {
  readonly events: { batch: number; lane: number; state: 'open' | 'in flight' | 'acknowledged' }[] = []
  routedBatches = 0

  take(step: Step): boolean {
    switch (step.do) {
      case 'hold':
        this.events.push({ batch: this.routedBatches + 1, lane: step.lane, state: 'open' })
        return true
      case 'routed':
        this.routedBatches += 1
        return true
      case 'sending': {
        if (this.events.some((event) => event.lane === step.lane && event.state === 'in flight')) return false
        this.#move(step.lane, 'open', 'in flight')
        return true
      }
      case 'acknowledged':
        this.#move(step.lane, 'in flight', 'acknowledged')
        return true
    }
  }

  /** The last routed batch for which every event up to its end is acknowledged; null if there is none. */
  get safe(): number | null {
    for (let batch = this.routedBatches; batch > 0; batch--) {
      if (this.events.every((event) => event.batch > batch || event.state === 'acknowledged')) return batch
    }
    return null
  }

  #move(lane: number, from: 'open' | 'in flight', to: 'in flight' | 'acknowledged'): void {
    for (const event of this.events) if (event.lane === lane && event.state === from) event.state = to
  }
}

function apply(watermark: Watermark<number>, step: Step): void {
  switch (step.do) {
    case 'hold':
      watermark.hold(step.lane, watermark.nextBatch)
      break
    case 'routed':
      watermark.routed(watermark.nextBatch)
      break
    default:
      watermark[step.do](step.lane)
  }
}

describe('watermark', () => {
  it('property: equals the model, so it never passes an unacknowledged event, never moves back, and is as high as possible', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const model = new Model()
        const watermark = new Watermark<number>(lanes)
        let previous = 0
        for (const step of steps) {
          if (!model.take(step)) {
            expect(() => apply(watermark, step)).toThrow(/one batch at a time/)
            continue
          }
          apply(watermark, step)
          expect(watermark.safe).toBe(model.safe)
          expect(watermark.safe ?? 0).toBeGreaterThanOrEqual(previous)
          previous = watermark.safe ?? 0
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('property: reaches the last routed batch once all events of every lane are sent and acknowledged', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const model = new Model()
        const watermark = new Watermark<number>(lanes)
        for (const step of steps) if (model.take(step)) apply(watermark, step)
        apply(watermark, { do: 'routed' })
        for (let lane = 0; lane < lanes; lane++) {
          for (const todo of ['acknowledged', 'sending', 'acknowledged'] as const) apply(watermark, { do: todo, lane })
        }
        expect(watermark.safe).toBe(watermark.nextBatch - 1)
      }),
    )
  })

  it('waits for the events of a lane that are in flight, and for the events that have entered the lane after them', () => {
    const watermark = new Watermark<string>(2)
    watermark.hold(0, watermark.nextBatch)
    watermark.routed('one')
    watermark.sending(0)
    watermark.hold(0, watermark.nextBatch)
    watermark.routed('two')
    expect(watermark.safe).toBeNull()
    watermark.acknowledged(0)
    expect(watermark.safe).toBe('one')
    watermark.sending(0)
    watermark.acknowledged(0)
    expect(watermark.safe).toBe('two')
  })

  it('advances over empty batches, so that an idle stream does not fall behind', () => {
    const watermark = new Watermark<string>(1)
    expect(watermark.safe).toBeNull()
    watermark.routed('one')
    watermark.routed('two')
    expect(watermark.safe).toBe('two')
  })
})
