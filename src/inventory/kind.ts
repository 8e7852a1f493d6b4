import type { Document } from 'mongodb'
import type { InventoryCluster } from './inventory-cluster.ts'

/** Something that tandem does not sync, as one cluster has it. */
export interface Item {
  /** Identifies it among the items of its kind, and is shown to the user. */
  name: string
  /** What is compared. Fields that a cluster assigns, such as identifiers and times, are left out. */
  value: Document
}

/** A command for mongosh. */
export interface Command {
  text: string
  /**
   * Why an administrator has to decide on it: it removes something, is hard to undo, or has no effect on this release.
   * It is printed as a comment.
   */
  review?: string
}

/** How an item of cluster0 and the item of the same name on cluster1 differ. One of them may be absent. */
export type Pair =
  | { how: 'missing'; ours: Item; theirs: null }
  | { how: 'extra'; ours: null; theirs: Item }
  | { how: 'different'; ours: Item; theirs: Item }

/** One kind of items that tandem does not sync, such as users or zones. */
export interface Kind {
  name: string
  /** The privilege that a user needs to read them, as text. */
  privilege: string
  /**
   * Returns null if the kind does not exist in the cluster's release or topology. Throws the server's error if the user
   * may not read it.
   */
  read: (cluster: InventoryCluster) => Promise<Item[] | null>
  /** Returns the commands that make the item on cluster1 equal to the item on cluster0. */
  commands: (pair: Pair) => Command[]
  /** Sorts items so that each comes after those on which it depends. */
  inOrder?: (items: readonly Item[]) => Item[]
}
