// Workflows as the dashboard draws them: boxes, arrows and durations. Pure functions, no requests.
import type { Edge, Node } from './types.gen'

export type Planned = Pick<Node, 'name' | 'depends_on' | 'item_of' | 'added_by'> & { isMap?: boolean }
export type On = Edge['on']
export type NodeState = Node['state']
// A box: a node, a map with its items, or all nodes of some ranks.
export type Unit = { id: string; title: string; kind: 'node' | 'map' | 'ranks'; nodes: string[]; isAdded: boolean }
// An arrow, and the nodes whose ends decide it.
export type Link = { id: string; from: string; to: string; on: On; parents: string[] }
export type Shape = { units: Unit[]; links: Link[]; isCollapsed: boolean }

export const DRAWN_MAX = 300
export const OPENED_MAX = 120
const BANDS_MAX = 60
const RANKS = 'ranks:'

export const ENDED: NodeState[] = ['succeeded', 'failed', 'expired', 'cancelled', 'skipped']
// The state of a box that stands for many nodes: the first of these that any node has.
const LOUDEST: NodeState[] = ['failed', 'running', 'ready', 'waiting', 'expired', 'cancelled', 'succeeded', 'skipped']
export const IN_ORDER: NodeState[] = ['succeeded', 'running', 'ready', 'waiting', 'skipped', 'cancelled', 'expired', 'failed']

export const hasEnded = (state: NodeState): boolean => ENDED.includes(state)
export const isMet = (on: On, state: NodeState): boolean =>
  on === 'always' ? hasEnded(state) : on === 'success' ? state === 'succeeded' : ['failed', 'expired', 'cancelled'].includes(state)

// The nodes of a job's target, whose dependencies may be plain names.
export function plannedOf(nodes: Record<string, unknown>): Planned[] {
  return Object.entries(nodes).map(([name, fields]) => {
    const { depends_on = [], map } = fields as { depends_on?: (string | { node: string; on?: On })[]; map?: unknown }
    return { name, depends_on: depends_on.map((one) => (typeof one === 'string' ? { node: one, on: 'success' } : { node: one.node, on: one.on ?? 'success' })), item_of: null, added_by: null, isMap: Boolean(map) }
  })
}

// The boxes and arrows: a map contains its items unless expanded; a large graph has one box per rank, or per several ranks.
export function shapeOf(nodes: Planned[], opened = ''): Shape {
  const maps = mapsOf(nodes)
  const isOpen = (name: string) => name === opened && maps.get(name)!.length <= OPENED_MAX
  const holder = new Map(nodes.map((node) => [node.name, node.item_of !== null && !isOpen(node.item_of) ? node.item_of : node.name]))
  const units = new Map<string, Unit>()
  for (const node of nodes) {
    const id = holder.get(node.name)!
    const isMap = node.isMap || maps.has(node.name)
    if (id === node.name) units.set(id, { id, title: node.name, kind: isMap ? 'map' : 'node', nodes: [node.name, ...(isMap && !isOpen(id) ? (maps.get(id) ?? []) : [])], isAdded: node.added_by !== null })
  }
  const whole = { units: [...units.values()], links: linksOf(nodes, holder, isOpen), isCollapsed: false }
  return whole.units.length > DRAWN_MAX ? collapsed(whole, opened) : whole
}

function mapsOf(nodes: Planned[]): Map<string, string[]> {
  return new Map([...itemsOf(nodes)].map(([map, items]) => [map, items.map((item) => item.name)]))
}

// The items of each map.
export function itemsOf<T extends Planned>(nodes: T[]): Map<string, T[]> {
  const found = new Map<string, T[]>()
  for (const node of nodes) if (node.item_of !== null) push(found, node.item_of, node)
  return found
}

function push<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const known = lists.get(key)
  if (known) known.push(value)
  else lists.set(key, [value])
}

function linksOf(nodes: Planned[], holder: Map<string, string>, isOpen: (map: string) => boolean): Link[] {
  const links = new Map<string, Link>()
  const byName = new Map(nodes.map((node) => [node.name, node]))
  const draw = (parent: string, child: string, on: On) => add(links, holder.get(parent), holder.get(child), on, parent)
  for (const node of nodes) {
    // The items of an expanded map come between its dependencies and the map.
    if (node.item_of !== null && isOpen(node.item_of)) {
      draw(node.name, node.item_of, 'success')
      for (const { node: parent, on } of byName.get(node.item_of)?.depends_on ?? []) draw(parent, node.name, on)
    } else if (!(isOpen(node.name) && node.item_of === null)) for (const { node: parent, on } of node.depends_on) draw(parent, node.name, on)
  }
  return [...links.values()]
}

// Merge arrows of one kind between the same boxes.
function add(links: Map<string, Link>, from: string | undefined, to: string | undefined, on: On, parent: string): void {
  if (from === undefined || to === undefined || from === to) return
  const id = `${from}>${to}>${on}`
  const known = links.get(id)
  if (known) known.parents.push(parent)
  else links.set(id, { id, from, to, on, parents: [parent] })
}

function collapsed(whole: Shape, opened: string): Shape {
  const ranks = ranksOf(whole)
  const width = Math.ceil((1 + Math.max(...ranks.values())) / BANDS_MAX)
  const bands = new Map<number, Unit[]>()
  for (const unit of whole.units) push(bands, Math.floor(ranks.get(unit.id)! / width), unit)
  const holder = new Map<string, string>()
  const units: Unit[] = []
  for (const [band, members] of bands) {
    const [first, last] = [band * width + 1, (band + 1) * width]
    const id = `${RANKS}${first}-${last}`
    const isWhole = members.length === 1 || (id === opened && members.length <= OPENED_MAX)
    for (const member of members) holder.set(member.id, isWhole ? member.id : id)
    if (isWhole) units.push(...members)
    else units.push({ id, title: titleOf(id), kind: 'ranks', nodes: members.flatMap((one) => one.nodes), isAdded: false })
  }
  const links = new Map<string, Link>()
  for (const { from, to, on, parents } of whole.links) for (const parent of parents) add(links, holder.get(from)!, holder.get(to)!, on, parent)
  return { units, links: [...links.values()], isCollapsed: true }
}

// The title of a box: a node's name, or the numbers of its ranks.
export function titleOf(id: string): string {
  const [first, last] = id.startsWith(RANKS) ? id.slice(RANKS.length).split('-') : []
  return first === undefined ? id : first === last ? `Rank ${first}` : `Ranks ${first} to ${last}`
}

// The rank of each box: the length of the longest path to it.
function ranksOf({ units, links }: Shape): Map<string, number> {
  const waits = new Map(units.map((unit) => [unit.id, 0]))
  const next = new Map<string, string[]>()
  for (const { from, to } of links) {
    waits.set(to, waits.get(to)! + 1)
    push(next, from, to)
  }
  const ranks = new Map(units.map((unit) => [unit.id, 0]))
  const free = units.filter((unit) => waits.get(unit.id) === 0).map((unit) => unit.id)
  for (let id = free.pop(); id !== undefined; id = free.pop())
    for (const child of next.get(id) ?? []) {
      ranks.set(child, Math.max(ranks.get(child)!, ranks.get(id)! + 1))
      waits.set(child, waits.get(child)! - 1)
      if (waits.get(child) === 0) free.push(child)
    }
  return ranks
}

export type Tally = Partial<Record<NodeState, number>>

export function tallyOf(nodes: Iterable<Pick<Node, 'state'>>): Tally {
  const tally: Tally = {}
  for (const { state } of nodes) tally[state] = (tally[state] ?? 0) + 1
  return tally
}

export const total = (tally: Tally, states: NodeState[] = IN_ORDER): number => states.reduce((sum, state) => sum + (tally[state] ?? 0), 0)

// The state of a box: a map's own once it has ended, else the most prominent of its nodes.
export function stateOf(unit: Unit, nodes: Map<string, Node>): NodeState {
  const own = nodes.get(unit.nodes[0]!)?.state ?? 'waiting'
  if (unit.kind === 'node' || (unit.kind === 'map' && (hasEnded(own) || unit.nodes.length === 1))) return own
  const tally = tallyOf(unit.nodes.slice(unit.kind === 'map' ? 1 : 0).flatMap((name) => nodes.get(name) ?? []))
  if (unit.kind === 'map') return tally.running ? 'running' : tally.ready ? 'ready' : 'waiting'
  return LOUDEST.find((state) => tally[state]) ?? 'waiting'
}

// The state of an arrow: open, met or unmet.
export function passage(link: Link, nodes: Map<string, Node>): 'open' | 'met' | 'unmet' {
  const states = link.parents.map((name) => nodes.get(name)?.state ?? 'waiting')
  if (states.some((state) => !hasEnded(state))) return 'open'
  return states.some((state) => isMet(link.on, state)) ? 'met' : 'unmet'
}

// The time a node took, from release to end, in milliseconds; a map spans its items.
export function spanOf(node: Node, items: Node[], now: number): { from: number; to: number } | null {
  if (items.length) {
    const spans = items.flatMap((item) => spanOf(item, [], now) ?? [])
    return spans.length ? { from: Math.min(...spans.map((one) => one.from)), to: Math.max(...spans.map((one) => one.to)) } : null
  }
  if (!node.released_at || node.state === 'waiting') return null
  const from = Date.parse(node.released_at)
  return { from, to: Math.max(from, node.ended_at ? Date.parse(node.ended_at) : now) }
}

const WORDS: Record<On, string> = { success: 'succeeds', failure: 'fails', always: 'ends' }
export const condition = (edge: Edge): string => `${edge.node} ${WORDS[edge.on]}`
