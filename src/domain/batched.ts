/**
 * Combines many calls into one: all requests that arrive at the same moment, or while a call is in progress, share the
 * next call.
 * @param max maximum number of requests in one call
 * @param call returns one result for each request, in order; if it rejects, every request of that call rejects
 */
export function batched<Request, Result>(
  max: number,
  call: (requests: Request[]) => Promise<Result[]>,
): (request: Request) => Promise<Result> {
  const waiting: { request: Request; resolve: (result: Result) => void; reject: (error: unknown) => void }[] = []
  let running = false

  async function run(): Promise<void> {
    await null // Requests that are made in the same tick join the first call.
    while (waiting.length > 0) {
      const taken = waiting.splice(0, max)
      try {
        const results = await call(taken.map(({ request }) => request))
        for (const [at, { resolve }] of taken.entries()) resolve(results[at] as Result)
      } catch (error) {
        for (const { reject } of taken) reject(error)
      }
    }
    running = false
  }

  return (request) =>
    new Promise<Result>((resolve, reject) => {
      waiting.push({ request, resolve, reject })
      if (running) return
      running = true
      void run()
    })
}
