// Keyboard shortcuts: `g` and a letter opens a screen, j and k move between table rows, / searches, ? lists all shortcuts.
import { router } from './router.svelte'
import { session, type Need } from './session.svelte'

export type Place = { key: string; text: string; path: string; needs?: Need }

const ALL: Place[] = [
  { key: 'o', text: 'Overview', path: '/overview' },
  { key: 'j', text: 'Jobs', path: '/jobs' },
  { key: 'r', text: 'Runs', path: '/runs' },
  { key: 'w', text: 'Workflows', path: '/workflows' },
  { key: 'd', text: 'Dead letters', path: '/dead' },
  { key: 'q', text: 'Queues and workers', path: '/queues' },
  { key: 't', text: 'Destinations', path: '/destinations' },
  { key: 'n', text: 'Notifications', path: '/notifications' },
  { key: 'f', text: 'Schedules as code', path: '/files' },
  { key: 'k', text: 'Tenants and API keys', path: '/keys', needs: 'admin' },
  { key: 'a', text: 'Audit log', path: '/audit', needs: 'admin' },
  { key: 's', text: 'System', path: '/system', needs: 'operator' },
]

export const places = (): Place[] => ALL.filter((one) => !one.needs || session.may(one.needs))

class Keyboard {
  showsPalette = $state(false)
  showsHelp = $state(false)
  #wantsPlace = false

  press(event: KeyboardEvent): void {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault()
      this.showsPalette = !this.showsPalette
      return
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector('dialog[open]')) return
    if (this.#wantsPlace) {
      this.#wantsPlace = false
      const place = places().find((one) => one.key === event.key)
      if (place) router.go(place.path)
      return
    }
    const act = this.#acts[event.key]
    if (!act) return
    event.preventDefault()
    act()
  }

  #acts: Record<string, () => void> = {
    g: () => {
      this.#wantsPlace = true
      setTimeout(() => (this.#wantsPlace = false), 5000)
    },
    '/': () => document.querySelector<HTMLElement>('[data-search]')?.focus(),
    '?': () => (this.showsHelp = true),
    j: () => walk(1),
    k: () => walk(-1),
    x: () => select(),
    e: () => document.querySelector<HTMLElement>('[data-key=e]')?.click(),
    r: () => document.querySelector<HTMLElement>('[data-key=r]')?.click(),
  }
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
}

// Select the focused row, or the first one.
function select(): void {
  const row = document.activeElement?.closest('tr') ?? document.querySelector('[data-row]')?.closest('tr')
  row?.querySelector<HTMLElement>('[data-select]')?.click()
}

function walk(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')]
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement))
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))]
  next?.focus()
  next?.scrollIntoView({ block: 'nearest' })
}

export const keyboard = new Keyboard()
