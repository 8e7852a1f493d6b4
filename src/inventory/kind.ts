import type { Document } from 'mongodb'
import type { InventoryCluster } from './inventory-cluster.ts'

/** An item that tandem inventory compares, such as a user, in the state that it has on one cluster. */
export interface Item {
  /** Identifies the item among the items of its kind. It is printed in the report. */
  name: string
  /** What is compared. Fields that a cluster assigns, such as identifiers and times, are left out. */
  value: Document
  /** The release of the cluster's servers, if the commands depend on it. It is not compared. */
  release?: string
}

/** A command for mongosh. */
export interface Command {
  text: string
  /**
   * The reason why an administrator has to decide on this command, for example that it removes something or is hard to
   * undo. If there is a reason, the command is printed as a comment.
   */
  review?: string
}

/** An item that differs, as cluster0 (`ours`) and cluster1 (`theirs`) have it. Null means that the cluster lacks it. */
export type Pair =
  | { how: 'missing'; ours: Item; theirs: null }
  | { how: 'extra'; ours: null; theirs: Item }
  | { how: 'different'; ours: Item; theirs: Item }

/** A kind of items that tandem does not sync, or not always, such as users or zones. */
export interface Kind {
  name: string
  /** The privilege that a user needs to read the items, as text. */
  privilege: string
  /**
   * Returns null if the kind does not exist in the cluster's release or topology. Throws the server's error if the user
   * may not read the items.
   */
  read: (cluster: InventoryCluster) => Promise<Item[] | null>
  /** Returns the commands that make the item on cluster1 equal to the item on cluster0. */
  commands: (pair: Pair) => Command[]
  /** Sorts items so that each comes after those on which it depends. */
  inOrder?: (items: readonly Item[]) => Item[]
}
