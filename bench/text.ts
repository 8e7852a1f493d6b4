import { Random } from '../test/support/random.ts'

/**
 * Text that compresses about as well as prose, because its words are drawn from a vocabulary. The pool is generated once,
 * and documents contain pieces of it, because generating a gigabyte of text would take longer than copying it.
 */
export class TextPool {
  readonly text: string
  readonly #random: Random

  constructor(seed: string, characters: number) {
    this.#random = new Random(seed)
    const vocabulary = Array.from({ length: 2_000 }, () => this.#random.word(this.#random.int(2, 11)))
    const words: string[] = []
    for (let length = 0; length < characters; length += (words.at(-1) as string).length + 1) {
      words.push(this.#random.pick(vocabulary))
    }
    this.text = words.join(' ')
  }

  /** Returns a random offset at which a piece of `length` characters begins. */
  offsetFor(length: number): number {
    return this.#random.int(0, this.text.length - length - 1)
  }

  piece(length: number): string {
    const offset = this.offsetFor(length)
    return this.text.slice(offset, offset + length)
  }
}
