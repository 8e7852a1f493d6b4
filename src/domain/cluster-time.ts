/**
 * A cluster time as one comparable number: seconds since 1970 in the high 32 bits, the ordinal within the second in
 * the low 32, which is how BSON stores a timestamp.
 */
export type ClusterTime = bigint

export function clusterTime(seconds: number, ordinal: number): ClusterTime {
  return (BigInt(seconds) << 32n) | BigInt(ordinal)
}

export function secondsOf(time: ClusterTime): number {
  return Number(time >> 32n)
}

export function ordinalOf(time: ClusterTime): number {
  return Number(time & 0xffffffffn)
}

/** Whole seconds from one time to a later one; negative if `to` is earlier. */
export function secondsBetween(from: ClusterTime, to: ClusterTime): number {
  return secondsOf(to) - secondsOf(from)
}

export function laterOf(one: ClusterTime, other: ClusterTime): ClusterTime {
  return one > other ? one : other
}

export function earlierOf(one: ClusterTime, other: ClusterTime): ClusterTime {
  return one < other ? one : other
}

/**
 * The cluster time of a resume token. A token's `_data` is a KeyString in hexadecimal. Its first element is the
 * timestamp: type byte 0x82, then seconds and ordinal, big-endian (server source:
 * src/mongo/db/pipeline/resume_token.h).
 * @throws RangeError if the token does not begin with a timestamp
 */
export function clusterTimeOfToken(data: string): ClusterTime {
  if (!/^82[0-9A-Fa-f]{16}/.test(data)) throw new RangeError('a resume token does not begin with a timestamp')
  return clusterTime(Number.parseInt(data.slice(2, 10), 16), Number.parseInt(data.slice(10, 18), 16))
}

/** The cluster time of a BSON timestamp at `offset`: ordinal first, then seconds, little-endian. */
export function clusterTimeAt(bytes: Buffer, offset: number): ClusterTime {
  return bytes.readBigUInt64LE(offset)
}
