/** A time by both clocks of this host. */
export interface HostMoment {
  monotonic: number
  wall: number
}

/**
 * The clocks of this host. They decide whether a lease, or the confirmation of a lease, has expired. A simulation
 * replaces the methods of this object.
 */
export const hostClocks = {
  now(): HostMoment {
    return { monotonic: performance.now(), wall: Date.now() }
  },

  /**
   * The longest time, in ms, that may have passed since the given moment: the larger difference of the two clocks. The
   * monotonic clock does not advance while a virtual machine or a laptop is suspended (clock_gettime(2),
   * CLOCK_MONOTONIC), and the wall clock may be set back.
   */
  longestSince({ monotonic, wall }: HostMoment): number {
    return Math.max(performance.now() - monotonic, Date.now() - wall)
  },
}
