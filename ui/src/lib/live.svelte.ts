// What happens, as it happens: one stream for the whole page. It says that something has happened, and screens then ask again:
// once a second at most, though two may be in a row; not while the page is hidden, and every few seconds when there is no stream.
import { session } from './session.svelte'

const KINDS = ['started', 'succeeded', 'failed', 'dead', 'cancelled', 'skipped', 'expired'].map((kind) => `duly.run.${kind}.v1`)
const FRAME_MS = 1_000
const SETTLED_MS = 2_500
const IDLE_FRAMES = 10
const POLL_FRAMES = 3

class Live {
  beat = $state(0)
  isStreaming = $state(false)
  isPaused = $state(document.hidden)
  #source: EventSource | null = null
  #beatAt = 0
  #spentUntil = 0 // Each beat spends a frame, of which one may be ahead: a job is made, and its run starts right behind it.
  #waiting = 0
  #later = 0

  constructor() {
    setInterval(() => this.#idle(), FRAME_MS)
    document.addEventListener('visibilitychange', () => this.#turn())
  }

  // Something happened, or was changed by ourselves: ask again, at once unless that was done just before.
  touch(): void {
    if (document.hidden || this.#waiting) return
    this.#waiting = setTimeout(() => this.#frame(), Math.max(0, this.#spentUntil - FRAME_MS - performance.now()))
  }

  // Roll-ups follow what happened by a second or two, so what is read at once is read once more.
  #hear(): void {
    this.touch()
    this.#later ||= setTimeout(() => {
      this.#later = 0
      this.touch()
    }, SETTLED_MS)
  }

  start(): void {
    if (this.#source || document.hidden || !session.who) return
    const source = new EventSource('/v1/events')
    const note = () => this.#hear()
    for (const kind of [...KINDS, 'duly.stream.gap.v1', 'duly.job.changed.v1', 'duly.workflow.changed.v1', 'duly.workflow.ended.v1']) source.addEventListener(kind, note)
    source.onopen = () => (this.isStreaming = true)
    source.onerror = () => {
      this.isStreaming = false
      if (source.readyState === EventSource.CLOSED) this.stop() // The next polls open another.
    }
    this.#source = source
  }

  stop(): void {
    this.#source?.close()
    this.#source = null
    this.isStreaming = false
  }

  #turn(): void {
    this.isPaused = document.hidden
    if (document.hidden) return this.stop()
    this.start()
    this.touch()
  }

  #idle(): void {
    if (document.hidden || !session.who) return
    if (!this.#source) this.start()
    const rest = this.isStreaming ? IDLE_FRAMES : POLL_FRAMES
    if (performance.now() - this.#beatAt >= rest * FRAME_MS) this.touch()
  }

  #frame(): void {
    this.#waiting = 0
    if (document.hidden || !session.who) return
    this.#beatAt = performance.now()
    this.#spentUntil = Math.max(this.#spentUntil, this.#beatAt) + FRAME_MS
    this.beat += 1
  }
}

export const live = new Live()
