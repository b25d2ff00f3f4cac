// The colour theme: dark, light or the system's.
export type Choice = 'system' | 'light' | 'dark'
const PLACE = 'duly.theme'

class Theme {
  choice = $state<Choice>((localStorage.getItem(PLACE) as Choice | null) ?? 'system')
  constructor() {
    this.#show()
  }
  next(): void {
    this.choice = this.choice === 'system' ? 'light' : this.choice === 'light' ? 'dark' : 'system'
    localStorage.setItem(PLACE, this.choice)
    this.#show()
  }
  #show(): void {
    document.documentElement.style.colorScheme = this.choice === 'system' ? 'light dark' : this.choice
  }
}
export const theme = new Theme()
