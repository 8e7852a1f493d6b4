/** What a check before a start found: an error refuses the start, a warning or an info does not. */
export interface Finding {
  severity: 'error' | 'warning' | 'info'
  /** Of an error: the name that start is refused with. */
  name: string
  /** database.collection, where it is about one. */
  namespace?: string
  message: string
  remedy: string
}
