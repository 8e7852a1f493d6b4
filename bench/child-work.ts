/**
 * The child process's side of child.ts. It prepares with the given input, reports `ready`, and runs once when it
 * receives `go`.
 */
export async function serveParent<Input, Result extends object>(
  prepare: (input: Input) => Promise<() => Promise<Result>>,
): Promise<void> {
  process.once('disconnect', () => process.exit(0))
  const run = await prepare(JSON.parse(process.argv[2] as string) as Input)
  process.once('message', () => {
    run().then(
      (result) => process.send?.(result),
      (error) => {
        console.error(error)
        process.exit(1)
      },
    )
  })
  process.send?.('ready')
}
