import type { AnyStateMachine, AnyStateNode } from 'xstate'

/**
 * Renders state machines as Mermaid charts (https://mermaid.js.org/syntax/stateDiagram.html). There is one chart for
 * each machine and for each state with substates. A chart shows the transitions between the children of one state. Each
 * child represents all states inside it, because Mermaid cannot draw a transition from a substate of one state to a
 * substate of another.
 */

interface Edge {
  from: AnyStateNode
  /** Null if the transition does not leave the state. */
  to: AnyStateNode | null
  label: string
}

/** Id of the node from which a chart draws the transitions that all of its states have. */
const anyState = 'anyState'

/** Renders a whole machine, one section for each chart. */
export function renderMachine(machine: AnyStateMachine): string {
  const edges = nodesOf(machine.root).flatMap(edgesOf)
  return nodesOf(machine.root)
    .filter((node) => childrenOf(node).length > 0)
    .map((node) => renderComposite(node, edges))
    .join('\n')
}

function renderComposite(composite: AnyStateNode, edges: Edge[]): string {
  const heading = composite.parent ? `### ${composite.machine.id}: ${nameOf(composite)}` : `## ${composite.machine.id}`
  return [heading, '', '```mermaid', ...chartOf(composite, edges), '```', '', ...tableOf(composite, edges), ''].join(
    '\n',
  )
}

function chartOf(composite: AnyStateNode, edges: Edge[]): string[] {
  const children = childrenOf(composite)
  const outside = new Map<string, string>()
  const labels = new Map<string, Set<string>>()
  for (const { from, to, label } of edges) {
    const start = childOver(from, composite)
    const end = to && childOver(to, composite)
    // Transitions without a target are in the table. A transition that begins outside the composite is in another chart,
    // and so is one that begins at the composite itself and does not end inside it.
    if (!to || (!start && !(from === composite && end))) continue
    // A transition within one child is in that child's chart.
    if (end !== null && end === start && (from !== start || to !== start)) continue
    if (!end) outside.set(idOf(to), nameOf(to))
    if (!start) outside.set(anyState, 'any of these')
    const arrow = `${start ? idOf(start) : anyState} --> ${idOf(end ?? to)}`
    labels.set(arrow, (labels.get(arrow) ?? new Set()).add(label))
  }
  const initial = composite.initial.target[0]
  return [
    'stateDiagram-v2',
    ...children.map((child) => `  state "${child.key}" as ${idOf(child)}`),
    ...[...outside].map(([id, name]) => `  state "${name}" as ${id}`),
    ...(initial ? [`  [*] --> ${idOf(initial)}`] : []),
    ...[...labels].map(([arrow, texts]) => `  ${arrow}: ${[...texts].join('<br/>')}`),
  ]
}

/** Renders the details that a chart omits: tags, actors, and transitions that do not leave a state. */
function tableOf(composite: AnyStateNode, edges: Edge[]): string[] {
  const rows = [composite, ...childrenOf(composite)].map((node) => {
    const stays = edges.filter(({ from, to }) => from === node && to === null).map(({ label }) => label)
    const works = node.invoke.map(({ id }) => id)
    const name = node === composite ? `_${node.parent ? node.key : 'all'}_` : node.key
    return [name, node.tags.join(', '), works.join(', '), stays.join(', ')]
  })
  return [
    '| State | Tags | Actors | Events that do not leave the state |',
    '| ----- | -------- | ------------- | ------------------------ |',
    ...rows.map((cells) => `| ${cells.join(' | ')} |`),
  ]
}

function edgesOf(node: AnyStateNode): Edge[] {
  const transitions = [...node.transitions.values()].flat()
  return [...transitions, ...(node.always ?? [])].flatMap(({ eventType, guard, target }) => {
    const label = `${eventName(eventType)}${guardName(guard)}`.trim() || 'otherwise'
    const targets: (AnyStateNode | null)[] = target && target.length > 0 ? [...target] : [null]
    return targets.map((to) => ({ from: node, to, label }))
  })
}

/** Shortens XState's names of the events that report the end of an actor or of a delay. */
function eventName(eventType: string): string {
  const [, delay] = /^xstate\.after\.(\w+)\./.exec(eventType) ?? []
  if (delay !== undefined) return `after ${delay}`
  const [, end, actor] = /^xstate\.(done|error)\.actor\.(.+)$/.exec(eventType) ?? []
  return actor === undefined ? eventType : `${actor} ${end === 'done' ? 'done' : 'failed'}`
}

function guardName(guard: unknown): string {
  if (guard === undefined) return ''
  const name = typeof guard === 'string' ? guard : (guard as { type?: unknown }).type
  return ` [${typeof name === 'string' ? name : 'a condition without a name'}]`
}

function nodesOf(node: AnyStateNode): AnyStateNode[] {
  return [node, ...childrenOf(node).flatMap(nodesOf)]
}

function childrenOf(node: AnyStateNode): AnyStateNode[] {
  return Object.values(node.states)
}

/** Returns the child of `composite` that is or contains `node`; null if there is none. */
function childOver(node: AnyStateNode, composite: AnyStateNode): AnyStateNode | null {
  let at = node
  while (at.parent && at.parent !== composite) at = at.parent
  return at.parent === composite ? at : null
}

/** Returns an id made of the whole path, because keys are not unique: several states have a child `choosing`. */
function idOf(node: AnyStateNode): string {
  return node.path.length > 0 ? node.path.join('_') : node.machine.id
}

function nameOf(node: AnyStateNode): string {
  return node.path.join('.')
}
