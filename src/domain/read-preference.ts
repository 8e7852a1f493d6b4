export const copyReadPreferences = ['primary', 'secondaryPreferred'] as const

/** Which members of a source may answer the bulk reads of the copy and of the verifier. */
export type CopyReadPreference = (typeof copyReadPreferences)[number]
