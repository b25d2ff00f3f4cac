// Requests to the public API with the session cookie. An error response is thrown as Refused, with its problem document.
import type { Problem } from './types.gen'
import { session } from './session.svelte'

export class Refused extends Error {
  constructor(public readonly problem: Problem) {
    super(problem.detail)
  }
}

type Query = Record<string, string | number | boolean | null | undefined>
type Ask = { query?: Query; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal }

export function address(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text ? `${path}?${text}` : path
}

export async function ask<T>(method: string, path: string, { query, body, headers, signal }: Ask = {}): Promise<T> {
  const given: Record<string, string> = { Accept: 'application/json', ...headers }
  if (body !== undefined) given['Content-Type'] ??= 'application/json'
  if (method !== 'GET' && session.current?.csrf) given['X-Duly-CSRF'] = session.current.csrf
  let answer: Response
  try {
    answer = await fetch(address(path, query), {
      method,
      headers: given,
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
      credentials: 'same-origin',
    })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Refused(local('unreachable', 'The server is unreachable.', 'Check that it is running, then try again.', path))
  }
  if (answer.ok) return (answer.status === 204 ? undefined : await answer.json()) as T
  const problem = await problemOf(answer, path)
  if (answer.status === 401 && path !== '/v1/session') session.end()
  throw new Refused(problem)
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal) =>
  ask<T>('GET', path, { ...(query && { query }), ...(signal && { signal }) })
export const post = <T>(path: string, body: unknown = {}, query?: Query) =>
  ask<T>('POST', path, { body, ...(query && { query }) })

async function problemOf(answer: Response, path: string): Promise<Problem> {
  try {
    return (await answer.json()) as Problem
  } catch {
    return local('unreadable', `The server responded with status ${answer.status}.`, 'Try again; the server log has details.', path, answer.status)
  }
}

function local(code: string, detail: string, remedy: string, instance: string, status = 0): Problem {
  return { type: 'about:blank', title: detail, status, code, detail, instance, remedy, request_id: '', errors: [] }
}
