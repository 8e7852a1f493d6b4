export const copyReadPreferences = ['primary', 'secondaryPreferred'] as const

/** Selects the members of a source that may answer the bulk reads of the copy and of the verifier. */
export type CopyReadPreference = (typeof copyReadPreferences)[number]
