import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { repositoryRoot } from '../test/support/mongo-binaries.ts'

/**
 * A part of a measurement that runs in its own process. The process prepares, waits for `go`, runs, and stays alive until it
 * is disposed, so that its CPU time and memory can still be read. It also exits when its parent does (see child-work.ts).
 *
 *   startChild ──▶ prepares ──▶ ready … go ──▶ runs ──▶ result … stop
 */
export interface Child<Result> extends AsyncDisposable {
  pid: number
  go(): Promise<Result>
}

/** `program` is a file of this folder that calls `serveParent`. */
export async function startChild<Result>(program: string, input: object): Promise<Child<Result>> {
  const child = fork(path.join(repositoryRoot, 'dist/bench', `${program}.js`), [JSON.stringify(input)], {
    execArgv: [], // The child process must not inherit this process's loaders.
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const failed = once(child, 'exit').then(([exitCode]) => {
    throw new Error(`${program} ended with ${exitCode}`)
  })
  failed.catch(() => {})
  const answer = async (): Promise<unknown> => (await Promise.race([once(child, 'message'), failed]))[0]
  await answer()
  return {
    pid: child.pid as number,
    go: async () => {
      const answered = answer()
      child.send('go')
      return (await answered) as Result
    },
    [Symbol.asyncDispose]: async () => {
      if (child.connected) child.disconnect()
      await failed.catch(() => {})
    },
  }
}
