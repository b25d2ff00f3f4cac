// A resource that is read repeatedly. The old value stays until the new one arrives, so nothing flickers; an outdated response
// is dropped.
import { Refused } from './api'
import type { Problem } from './types.gen'

export class Loaded<T> {
  value = $state<T | undefined>()
  problem = $state<Problem | undefined>()
  isLoading = $state(false)
  #number = 0

  constructor(private readonly read: () => Promise<T>) {}

  async load(): Promise<void> {
    const number = ++this.#number
    this.isLoading = true
    try {
      const value = await this.read()
      if (number !== this.#number) return
      this.value = value
      this.problem = undefined
    } catch (error) {
      if (number !== this.#number) return
      if (!(error instanceof Refused)) throw error
      this.problem = error.problem
    } finally {
      if (number === this.#number) this.isLoading = false
    }
  }

  clear(): void {
    this.#number += 1
    this.value = undefined
    this.problem = undefined
  }
}
