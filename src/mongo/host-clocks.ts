/** A moment by both clocks of this host. */
export interface HostMoment {
  monotonic: number
  wall: number
}

/** The clocks of this host, for rights that end by themselves. An object, so that a simulation can change what is made of them. */
export const hostClocks = {
  now(): HostMoment {
    return { monotonic: performance.now(), wall: Date.now() }
  },

  /**
   * Milliseconds since then, at most: the larger of what both clocks have counted. The monotonic clock stands still while a virtual
   * machine or a laptop is suspended (clock_gettime(2), CLOCK_MONOTONIC), and the wall clock may be set back.
   */
  longestSince({ monotonic, wall }: HostMoment): number {
    return Math.max(performance.now() - monotonic, Date.now() - wall)
  },
}
