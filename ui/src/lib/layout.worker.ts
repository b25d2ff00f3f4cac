// Places boxes and arrows, apart from the page, so that it stays fluid meanwhile.
import { Graph, layout } from '@dagrejs/dagre'
import type { Direction, Layout, Point, ToPlace } from './layout'

const LABEL = { width: 74, height: 20, labelpos: 'c' as const }
const QUICKLY = 150 // boxes; beyond that the better ranking takes longer than it is worth

function best(request: ToPlace): Layout {
  const zoom = ({ width, height }: Layout) => Math.min(1, request.room.width / width, request.room.height / height)
  const [right, down] = [placed(request, 'LR'), placed(request, 'TB')]
  return zoom(down) > zoom(right) ? down : right
}

function placed({ boxes, arrows }: ToPlace, direction: Direction): Layout {
  const graph = new Graph({ multigraph: true })
  graph.setGraph({ rankdir: direction, nodesep: 24, edgesep: 14, ranksep: 44, marginx: 20, marginy: 20, ranker: boxes.length > QUICKLY ? 'longest-path' : 'network-simplex' })
  for (const { id, width, height } of boxes) graph.setNode(id, { width, height })
  for (const { id, from, to, isLabelled } of arrows) graph.setEdge(from, to, isLabelled ? { ...LABEL } : {}, id)
  layout(graph)
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number }
  return {
    direction, width, height,
    boxes: Object.fromEntries(boxes.map(({ id }) => [id, pointOf(graph.node(id) as Point)])),
    arrows: Object.fromEntries(graph.edges().map((edge) => {
      const { points = [], x, y } = graph.edge(edge) as Partial<Point> & { points?: Point[] }
      // The ends are where the line to the middle meets the box; ours meet it in the middle of a side.
      return [edge.name!, { points: points.slice(1, -1).map(pointOf), ...(x !== undefined && y !== undefined && { label: { x, y } }) }]
    })),
  }
}

const pointOf = ({ x, y }: Point): Point => ({ x, y })

addEventListener('message', ({ data }: MessageEvent<{ number: number; request: ToPlace }>) => postMessage({ number: data.number, layout: best(data.request) }))
