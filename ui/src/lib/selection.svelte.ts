// Selected rows by id. The selection survives a refresh of the list; another filter clears it.
import { SvelteSet } from 'svelte/reactivity'

export class Selection {
  readonly ids = new SvelteSet<string>()

  toggle(id: string): void {
    if (!this.ids.delete(id)) this.ids.add(id)
  }

  // Select a whole page, or clear it when it is fully selected.
  togglePage(ids: string[]): void {
    const isWhole = this.hasAll(ids)
    for (const id of ids) isWhole ? this.ids.delete(id) : this.ids.add(id)
  }

  hasAll(ids: string[]): boolean {
    return ids.length > 0 && ids.every((id) => this.ids.has(id))
  }

  clear(): void {
    this.ids.clear()
  }
}
