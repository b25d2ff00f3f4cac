// Toasts: results of actions and refusals.
import { Refused } from './api'
import type { Problem } from './types.gen'

export type Toast = { number: number; kind: 'good' | 'bad'; text: string; problem?: Problem; link?: { text: string; path: string } }

const SECONDS = { good: 6, bad: 15 }

class Toasts {
  all = $state<Toast[]>([])
  #number = 0

  show(text: string, link?: Toast['link']): void {
    this.#add({ number: ++this.#number, kind: 'good', text, ...(link && { link }) })
  }

  refuse(problem: Problem): void {
    this.#add({ number: ++this.#number, kind: 'bad', text: problem.detail, problem })
  }

  fail(text: string): void {
    this.#add({ number: ++this.#number, kind: 'bad', text })
  }

  drop(number: number): void {
    this.all = this.all.filter((one) => one.number !== number)
  }

  #add(toast: Toast): void {
    this.all = [...this.all.slice(-3), toast]
    setTimeout(() => this.drop(toast.number), SECONDS[toast.kind] * 1000)
  }
}

export const toasts = new Toasts()

// Run an action and show its refusal, if any. Returns whether it succeeded.
export async function attempt(act: () => Promise<unknown>): Promise<boolean> {
  try {
    await act()
    return true
  } catch (error) {
    if (!(error instanceof Refused)) throw error
    toasts.refuse(error.problem)
    return false
  }
}
