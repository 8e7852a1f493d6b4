/**
 * Combines many calls into one: questions that arrive at the same moment, or during a call, go into the next call
 * together.
 * @param max maximum number of questions in one call
 * @param answer returns one answer for each question, in order; if it rejects, every question of that call rejects
 */
export function gathered<Question, Answer>(
  max: number,
  answer: (questions: Question[]) => Promise<Answer[]>,
): (question: Question) => Promise<Answer> {
  const waiting: { question: Question; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = []
  let running = false

  async function run(): Promise<void> {
    await null // includes the questions of the same microtask
    while (waiting.length > 0) {
      const asked = waiting.splice(0, max)
      try {
        const answers = await answer(asked.map(({ question }) => question))
        for (const [at, { resolve }] of asked.entries()) resolve(answers[at] as Answer)
      } catch (error) {
        for (const { reject } of asked) reject(error)
      }
    }
    running = false
  }

  return (question) =>
    new Promise<Answer>((resolve, reject) => {
      waiting.push({ question, resolve, reject })
      if (running) return
      running = true
      void run()
    })
}
