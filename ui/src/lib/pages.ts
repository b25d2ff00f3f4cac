// One page of a list. The server scans a bounded number of rows, so a page may be short although more follow; read on until it is full.
import { get } from './api'

type List<T> = { items: T[]; next_page_token: string | null }
const REQUESTS_MAX = 5
export const PAGE_SIZE = 50

export async function page<T>(path: string, filter: string, token: string, size = PAGE_SIZE, more: Record<string, string> = {}): Promise<List<T>> {
  const found: List<T> = { items: [], next_page_token: token || null }
  for (let request = 0; request < REQUESTS_MAX; request += 1) {
    const next = await get<List<T>>(path, { ...more, filter, page_size: size - found.items.length, page_token: found.next_page_token })
    found.items.push(...next.items)
    found.next_page_token = next.next_page_token
    if (!next.next_page_token || found.items.length >= size) break
  }
  return found
}
