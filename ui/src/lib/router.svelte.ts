// The URL is the state: the path names a screen, the query its filters. Links are plain links.
const BASE = '/ui'

class Router {
  #url = $state(new URL(location.href))

  constructor() {
    addEventListener('popstate', () => (this.#url = new URL(location.href)))
    document.addEventListener('click', (event) => this.#follow(event))
    if (this.path === '/') this.go('/overview', { replace: true })
  }

  get path(): string {
    const path = this.#url.pathname
    return (path.startsWith(BASE) ? path.slice(BASE.length) : path).replace(/\/+$/, '') || '/'
  }

  get steps(): string[] {
    return this.path.slice(1).split('/').map(decodeURIComponent)
  }

  param(name: string): string {
    return this.#url.searchParams.get(name) ?? ''
  }

  go(path: string, { replace = false } = {}): void {
    const target = new URL(href(path), location.href)
    if (target.href === location.href) return
    history[replace ? 'replaceState' : 'pushState'](null, '', target)
    const isOther = target.pathname !== this.#url.pathname
    this.#url = target
    if (isOther) scrollTo(0, 0)
  }

  // Change some of the query and keep the rest; what is empty is left out. A new filter begins on the first page.
  set(changes: Record<string, string>, { replace = true } = {}): void {
    const query = new URLSearchParams(this.#url.searchParams)
    query.delete('page')
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name)
    const text = query.toString()
    this.go(this.path + (text ? `?${text}` : ''), { replace })
  }

  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = (event.target as Element | null)?.closest?.('a')
    if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(BASE + '/')) return
    event.preventDefault()
    this.go(link.pathname.slice(BASE.length) + link.search)
  }
}

export const href = (path: string): string => BASE + path
export const router = new Router()
