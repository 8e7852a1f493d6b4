/** The rehearsal cannot begin or cannot continue. The message says what happened and, if possible, what to do. */
export class RehearsalFailure extends Error {
  override readonly name = 'RehearsalFailure'
}
