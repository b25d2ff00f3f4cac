// A page of a list. The server looks at so many rows and no more, so a page may be short although more follow: some looks are taken at once.
import { get } from './api'

type List<T> = { items: T[]; next_page_token: string | null }
const LOOKS_MAX = 5
export const PAGE_SIZE = 50

export async function page<T>(path: string, filter: string, token: string, size = PAGE_SIZE, more: Record<string, string> = {}): Promise<List<T>> {
  const found: List<T> = { items: [], next_page_token: token || null }
  for (let look = 0; look < LOOKS_MAX; look += 1) {
    const next = await get<List<T>>(path, { ...more, filter, page_size: size - found.items.length, page_token: found.next_page_token })
    found.items.push(...next.items)
    found.next_page_token = next.next_page_token
    if (!next.next_page_token || found.items.length >= size) break
  }
  return found
}
