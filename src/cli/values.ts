import { InvalidArgumentError } from 'commander'

/** Values that several options take. Each throws a sentence for the operator. */

export function integerBetween(lowest: number, highest: number) {
  return (text: string): number => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (value >= lowest && value <= highest) return value
    throw new InvalidArgumentError(`It must be an integer from ${lowest} to ${highest}.`)
  }
}

export function nonEmpty(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('It must not be empty.')
  return text
}
