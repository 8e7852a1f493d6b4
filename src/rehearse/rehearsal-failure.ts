/** The rehearsal cannot begin or cannot go on. The message says what was under way and what to do. */
export class RehearsalFailure extends Error {
  override readonly name = 'RehearsalFailure'
}
