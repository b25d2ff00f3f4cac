// Asks the worker where boxes go. Of several questions that are open, each gets its own answer.
export type Point = { x: number; y: number }
// `room` is what it should best fit; it decides whether it grows to the right or downwards.
export type ToPlace = { room: { width: number; height: number }; boxes: { id: string; width: number; height: number }[]; arrows: { id: string; from: string; to: string; isLabelled: boolean }[] }
export type Direction = 'LR' | 'TB'
export type Layout = { direction: Direction; width: number; height: number; boxes: Record<string, Point>; arrows: Record<string, { points: Point[]; label?: Point }> }

let worker: Worker | undefined
let number = 0
const waiting = new Map<number, (layout: Layout) => void>()

export function place(request: ToPlace): Promise<Layout> {
  worker ??= started()
  const mine = ++number
  worker.postMessage({ number: mine, request })
  return new Promise((resolve) => waiting.set(mine, resolve))
}

function started(): Worker {
  const created = new Worker(new URL('./layout.worker.ts', import.meta.url), { type: 'module' })
  created.onmessage = ({ data }: MessageEvent<{ number: number; layout: Layout }>) => {
    waiting.get(data.number)?.(data.layout)
    waiting.delete(data.number)
  }
  return created
}
