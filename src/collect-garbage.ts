import { setFlagsFromString } from 'node:v8'

/**
 * Makes V8 collect garbage in one pass instead of concurrently. Copied documents are outside the V8 heap, but V8 starts
 * a garbage collection for every 64 MB of them, although its heap of 25 MB has hardly changed. Concurrent marking took
 * a third of the process's CPU (profile of 200,000 documents of 10 KB, Node 20.20). One pass pauses the process for
 * about 25 ms, and V8 then collects half as often. Call this before the heap is large.
 */
export function collectInOnePass(): void {
  setFlagsFromString('--no-concurrent-marking')
  setFlagsFromString('--no-incremental-marking')
}
