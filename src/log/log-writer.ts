import { closeSync, existsSync, fstatSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'

/** A write to a full pipe waits for the reader at most `most` times, `eachMS` milliseconds each time. */
const waits = { most: 20, eachMS: 5 }
const waited = new Int32Array(new SharedArrayBuffer(4))

/**
 * Writes whole lines to an open file, synchronously. Throws the system's error. A line that was cut short is terminated
 * before the next line.
 */
export class LineWriter {
  readonly #descriptor: number
  #isTorn = false
  constructor(descriptor: number) {
    this.#descriptor = descriptor
  }

  write(line: string): void {
    const bytes = Buffer.from(this.#isTorn ? `\n${line}` : line)
    let [written, tries] = [0, 0]
    while (written < bytes.length) {
      try {
        written += writeSync(this.#descriptor, bytes, written)
      } catch (error) {
        tries += 1
        if ((error as NodeJS.ErrnoException).code === 'EAGAIN' && tries <= waits.most) {
          Atomics.wait(waited, 0, 0, waits.eachMS)
          continue
        }
        this.#isTorn ||= written > 0
        throw error
      }
    }
    this.#isTorn = false
  }
}

export interface LogFileOptions {
  path: string
  /** The file is rotated before it would grow beyond this size. Infinity: never. */
  bytesMax: number
  /** The number of files to keep: the current one, and the rotated ones, of which `path.1` is the newest. */
  files: number
}

interface OpenFile {
  descriptor: number
  writer: LineWriter
  bytes: number
}

/**
 * The log contains names of hosts, namespaces and users, so only its owner and the group that collects logs may read
 * it.
 */
const newFileMode = 0o640

/** A log file that is rotated when it is full. It is opened for appending, so that other processes may truncate it. */
export class LogFile {
  readonly #options: LogFileOptions
  #open: OpenFile | null = null
  /**
   * The size at which the file is rotated. It is raised when a rotation fails, so that the next attempt comes later.
   */
  #fullAt: number

  /** Throws when the file cannot be opened. */
  constructor(options: LogFileOptions) {
    this.#options = options
    this.#fullAt = options.bytesMax
    makeFolder(dirname(options.path))
    this.#opened()
  }

  /** Throws the system's error if the write fails. The line is then lost, but a later call may succeed. */
  write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#opened().bytes + bytes > this.#fullAt) this.#rotateWhenFull(bytes)
    const file = this.#opened()
    file.writer.write(line)
    file.bytes += bytes
  }

  /**
   * Rotates the current file regardless of its size, unless it is empty. A failed rotation is tried again when the file
   * reaches its size limit (`#fullAt`).
   */
  rotate(): void {
    this.#fullAt = 0
    try {
      this.#rotateWhenFull(0)
    } catch {
      // The file cannot be opened. The next line reports it.
    }
    if (this.#fullAt === 0) this.#fullAt = this.#options.bytesMax
  }

  /**
   * Closes the file, so that the next line goes to the file that then has the configured name. It is called after
   * another process has rotated the log.
   */
  reopen(): void {
    if (this.#open) closeSync(this.#open.descriptor)
    this.#open = null
    this.#fullAt = this.#options.bytesMax
  }

  #opened(): OpenFile {
    if (this.#open) return this.#open
    const descriptor = openSync(this.#options.path, 'a', newFileMode)
    this.#open = { descriptor, writer: new LineWriter(descriptor), bytes: fstatSync(descriptor).size }
    return this.#open
  }

  #rotateWhenFull(nextBytes: number): void {
    const file = this.#opened()
    // Another process may have truncated the file.
    file.bytes = fstatSync(file.descriptor).size
    if (file.bytes === 0 || file.bytes + nextBytes <= this.#fullAt) return
    const { path, files, bytesMax } = this.#options
    const name = (age: number): string => (age === 0 ? path : `${path}.${age}`)
    try {
      rmSync(name(files - 1), { force: true })
      for (let age = files - 2; age >= 0; age -= 1) moveIfPresent(name(age), name(age + 1))
      this.reopen()
    } catch {
      // A log that grows beyond its limit is better than none.
      this.#fullAt = file.bytes + bytesMax
    }
  }
}

/**
 * Creates folders one level at a time. With `recursive`, Node loops forever where the system accepts no folder, as in
 * /proc.
 */
function makeFolder(folder: string): void {
  if (existsSync(folder)) return
  makeFolder(dirname(folder))
  try {
    mkdirSync(folder)
  } catch (error) {
    // Another instance may have created it first.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

function moveIfPresent(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}
