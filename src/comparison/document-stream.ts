/**
 * Documents of one side in the order the server gives them, with a place to look ahead from. While a batch is compared,
 * the next one is already asked for; more than what was looked ahead for plus two batches is never held.
 */
export class DocumentStream {
  readonly #read: () => Promise<Buffer[] | null>
  #buffer: Buffer[] = []
  #at = 0
  #next: Promise<Buffer[] | null> | null = null
  #ended = false
  #documents = 0
  #bytes = 0

  /** `read` gives the next batch, null at the end; it is not called again before its answer is there. */
  constructor(read: () => Promise<Buffer[] | null>) {
    this.#read = read
  }

  /** Undefined at the end, or when `fill` must be called. */
  get head(): Buffer | undefined {
    return this.#buffer[this.#at]
  }

  /** True when nothing can be told before `fill`. */
  get drained(): boolean {
    return this.#at >= this.#buffer.length && !this.#ended
  }

  /** True when everything there is has been read, if not yet taken. */
  get ended(): boolean {
    return this.#ended
  }

  /** Read so far. */
  get documents(): number {
    return this.#documents
  }

  get bytes(): number {
    return this.#bytes
  }

  advance(count = 1): void {
    this.#at += count
  }

  /** Afterwards `head` is undefined only at the end. */
  async fill(): Promise<void> {
    while (this.drained) await this.#load()
  }

  /** The document `distance` places behind the head, or undefined beyond the end. */
  async ahead(distance: number): Promise<Buffer | undefined> {
    while (this.#at + distance >= this.#buffer.length && !this.#ended) await this.#load()
    return this.#buffer[this.#at + distance]
  }

  /** Waits for the read that is under way, so that its cursor may be closed. Reading may have failed; whoever read knows. */
  async settle(): Promise<void> {
    await this.#next?.catch(() => {})
  }

  async #load(): Promise<void> {
    const batch = await (this.#next ?? this.#read())
    if (batch === null) {
      this.#next = null
      this.#ended = true
      return
    }
    this.#next = this.#read()
    this.#next.catch(() => {}) // it is awaited at the next load, if there is one
    this.#buffer = this.#at >= this.#buffer.length ? batch : this.#buffer.slice(this.#at).concat(batch)
    this.#at = 0
    this.#documents += batch.length
    for (const document of batch) this.#bytes += document.length
  }
}
