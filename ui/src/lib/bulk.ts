// Bulk actions: the server applies them batch by batch to the ids or the filter that the dry run counted.
import { post } from './api'

export type Scope = { ids: string[] } | { filter: string }
export type Verb = { word: string; path: string; isDangerous?: boolean; batch?: number; mayBePaced?: boolean; says: (number: string) => string; done: string }
export type Answer = { matched: number; changed?: number; moved?: number; refused?: { id: string; reason: string }[]; next_page_token: string | null }

const COUNTED_MAX = 10_000
const BATCH = 500

const named = (scope: Scope) => ('ids' in scope ? { ids: scope.ids } : scope.filter ? { filter: scope.filter } : { all: true })

export const counted = (verb: Verb, scope: Scope): Promise<Answer> => post<Answer>(verb.path, { ...named(scope), dry_run: true, limit: COUNTED_MAX })

export async function carriedOut(verb: Verb, scope: Scope, more: Record<string, unknown>, onBatch: (answer: Answer) => void): Promise<void> {
  let token: string | null = null
  do {
    const answer: Answer = await post<Answer>(verb.path, { ...named(scope), ...more, limit: verb.batch ?? BATCH, ...(token && { page_token: token }) })
    onBatch(answer)
    token = answer.next_page_token
  } while (token !== null)
}
