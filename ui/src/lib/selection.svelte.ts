// Rows that were chosen, by their ids. They stay chosen while their list is read again; another filter begins anew.
import { SvelteSet } from 'svelte/reactivity'

export class Selection {
  readonly ids = new SvelteSet<string>()

  toggle(id: string): void {
    if (!this.ids.delete(id)) this.ids.add(id)
  }

  // All of a page, or none of it when all of it was chosen.
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
