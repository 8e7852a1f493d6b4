export const copyReadPreferences = ['primary', 'secondaryPreferred'] as const

/**
 * Selects the members that may answer the bulk reads of the copy and of the verifier. Only replica sets of 6.0 or later
 * are read from secondaries.
 */
export type CopyReadPreference = (typeof copyReadPreferences)[number]
