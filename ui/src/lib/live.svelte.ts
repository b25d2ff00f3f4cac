// Live updates: one event stream for the page. An event makes screens read their data again, at most once a second (two in a row
// are allowed), not while the page is hidden, and every few seconds without a stream.
import { session } from './session.svelte'

const KINDS = ['started', 'succeeded', 'failed', 'dead', 'cancelled', 'skipped', 'expired'].map((kind) => `duly.run.${kind}.v1`)
const FRAME_MS = 1_000
const SETTLED_MS = 2_500
const IDLE_FRAMES = 10
const POLL_FRAMES = 3

class Live {
  tick = $state(0)
  isStreaming = $state(false)
  isPaused = $state(document.hidden)
  #source: EventSource | null = null
  #tickedAt = 0
  #spentUntil = 0 // Each refresh uses up a frame, of which one may be ahead: a job is created and its run starts right after.
  #waiting = 0
  #later = 0

  constructor() {
    setInterval(() => this.#idle(), FRAME_MS)
    document.addEventListener('visibilitychange', () => this.#onVisibilityChange())
  }

  // Refresh, now unless a refresh just happened.
  touch(): void {
    if (document.hidden || this.#waiting) return
    this.#waiting = setTimeout(() => this.#frame(), Math.max(0, this.#spentUntil - FRAME_MS - performance.now()))
  }

  // Roll-ups lag by a second or two, so a second refresh follows.
  #hear(): void {
    this.touch()
    this.#later ||= setTimeout(() => {
      this.#later = 0
      this.touch()
    }, SETTLED_MS)
  }

  start(): void {
    if (this.#source || document.hidden || !session.current) return
    const source = new EventSource('/v1/events')
    const onEvent = () => this.#hear()
    for (const kind of [...KINDS, 'duly.stream.gap.v1', 'duly.job.changed.v1', 'duly.workflow.changed.v1', 'duly.workflow.ended.v1']) source.addEventListener(kind, onEvent)
    source.onopen = () => (this.isStreaming = true)
    source.onerror = () => {
      this.isStreaming = false
      if (source.readyState === EventSource.CLOSED) this.stop() // The next poll opens another.
    }
    this.#source = source
  }

  stop(): void {
    this.#source?.close()
    this.#source = null
    this.isStreaming = false
  }

  #onVisibilityChange(): void {
    this.isPaused = document.hidden
    if (document.hidden) return this.stop()
    this.start()
    this.touch()
  }

  #idle(): void {
    if (document.hidden || !session.current) return
    if (!this.#source) this.start()
    const rest = this.isStreaming ? IDLE_FRAMES : POLL_FRAMES
    if (performance.now() - this.#tickedAt >= rest * FRAME_MS) this.touch()
  }

  #frame(): void {
    this.#waiting = 0
    if (document.hidden || !session.current) return
    this.#tickedAt = performance.now()
    this.#spentUntil = Math.max(this.#spentUntil, this.#tickedAt) + FRAME_MS
    this.tick += 1
  }
}

export const live = new Live()
