/**
 * Makes one call of many: what is asked for at the same moment, or while a call is under way, goes into the next one together.
 * @param max questions in one call
 * @param answer one answer for each question, in their order; when it rejects, so do all who asked in that call
 */
export function gathered<Question, Answer>(
  max: number,
  answer: (questions: Question[]) => Promise<Answer[]>,
): (question: Question) => Promise<Answer> {
  const waiting: { question: Question; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = []
  let running = false

  async function run(): Promise<void> {
    await null // whoever asks in the same breath is to come along
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
