/**
 * The generator sfc32, which is small, fast and good enough for tests. The same seed gives the same numbers on every
 * machine.
 */
export class Random {
  private a: number
  private b: number
  private c: number
  private counter = 1

  constructor(seed: number | string) {
    const [a, b, c] = hash(String(seed))
    this.a = a
    this.b = b
    this.c = c
    for (let i = 0; i < 15; i++) this.uint32()
  }

  uint32(): number {
    const sum = (this.a + this.b + this.counter) | 0
    this.counter = (this.counter + 1) | 0
    this.a = this.b ^ (this.b >>> 9)
    this.b = (this.c + (this.c << 3)) | 0
    this.c = ((this.c << 21) | (this.c >>> 11)) + sum
    return sum >>> 0
  }

  /** Returns a number in [0, 1). */
  fraction(): number {
    return this.uint32() / 0x1_0000_0000
  }

  /** Returns a whole number from `from` to `to`, both included. */
  int(from: number, to: number): number {
    return from + Math.floor(this.fraction() * (to - from + 1))
  }

  chance(probability: number): boolean {
    return this.fraction() < probability
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new Error('the list to pick from is empty')
    return items[this.int(0, items.length - 1)] as T
  }

  weighted<T>(items: readonly (readonly [weight: number, item: T])[]): T {
    let remaining = this.fraction() * items.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, item] of items) {
      remaining -= weight
      if (remaining < 0) return item
    }
    return (items[items.length - 1] as readonly [number, T])[1]
  }

  shuffle<T>(items: readonly T[]): T[] {
    const shuffled = [...items]
    for (let i = shuffled.length - 1; i > 0; i--) {
      const j = this.int(0, i)
      const moved = shuffled[i] as T
      shuffled[i] = shuffled[j] as T
      shuffled[j] = moved
    }
    return shuffled
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length)
    for (let i = 0; i < length; i++) bytes[i] = this.uint32() >>> 24
    return bytes
  }

  word(length: number): string {
    let word = ''
    for (let i = 0; i < length; i++) word += 'abcdefghijklmnopqrstuvwxyz'[this.int(0, 25)]
    return word
  }

  /** Saves the generator's state. The returned function restores it, so that work can be repeated exactly. */
  mark(): () => void {
    const { a, b, c, counter } = this
    return () => Object.assign(this, { a, b, c, counter })
  }

  /** Returns an independent generator, so that additional draws in one place do not change the values in another. */
  fork(label: string): Random {
    return new Random(`${label}:${this.uint32()}`)
  }
}

/** Computes FNV-1a with three offsets, which is sufficient to separate adjacent seeds. */
function hash(text: string): [number, number, number] {
  return [0x811c9dc5, 0x9e3779b9, 0x85ebca6b].map((offset) => {
    let value = offset
    for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193)
    return value | 0
  }) as [number, number, number]
}
