/**
 * The documents of one side in the server's order, with access to the documents after the head. The next batch is
 * requested while the current one is compared. The stream keeps at most the documents that were accessed ahead, plus
 * two batches.
 */
export class DocumentStream {
  readonly #read: () => Promise<Buffer[] | null>
  #buffer: Buffer[] = []
  #at = 0
  #next: Promise<Buffer[] | null> | null = null
  #ended = false
  #documents = 0
  #bytes = 0

  /** @param read returns the next batch, or null at the end; never called while an earlier call is pending */
  constructor(read: () => Promise<Buffer[] | null>) {
    this.#read = read
  }

  /** The current document; undefined at the end, or if `fill` must be called first. */
  get head(): Buffer | undefined {
    return this.#buffer[this.#at]
  }

  /** True if `fill` must be called before the next document is known. */
  get drained(): boolean {
    return this.#at >= this.#buffer.length && !this.#ended
  }

  /** True if all documents have been read, even if `head` has not reached the end. */
  get ended(): boolean {
    return this.#ended
  }

  /** Number of documents read so far. */
  get documents(): number {
    return this.#documents
  }

  get bytes(): number {
    return this.#bytes
  }

  advance(count = 1): void {
    this.#at += count
  }

  /** Reads the next batch if necessary. After this, `head` is undefined only at the end. */
  async fill(): Promise<void> {
    while (this.drained) await this.#load()
  }

  /** Returns the document that is `distance` places after the head, or undefined beyond the end. */
  async ahead(distance: number): Promise<Buffer | undefined> {
    while (this.#at + distance >= this.#buffer.length && !this.#ended) await this.#load()
    return this.#buffer[this.#at + distance]
  }

  /**
   * Waits for the read in progress, so that its cursor can be closed. Ignores the error of a failed read: `fill` and
   * `ahead` throw it if they need that batch.
   */
  async idle(): Promise<void> {
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
    this.#next.catch(() => {}) // the next load awaits it, if there is one
    this.#buffer = this.#at >= this.#buffer.length ? batch : this.#buffer.slice(this.#at).concat(batch)
    this.#at = 0
    this.#documents += batch.length
    for (const document of batch) this.#bytes += document.length
  }
}
