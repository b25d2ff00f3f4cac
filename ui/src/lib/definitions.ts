// The definition of a job, apart from how it stands; and the least that has to be sent to make one into another.
const FIELDS = ['name', 'target', 'payload', 'queue', 'priority', 'schedule', 'on_event', 'retry', 'timeout', 'concurrency', 'rate_limit', 'expires_after', 'expires_at', 'on_done', 'on_dead', 'tags'] as const

export type Definition = Record<string, unknown>

export function definitionOf(told: object): Definition {
  const given = told as Record<string, unknown>
  return Object.fromEntries(FIELDS.filter((field) => given[field] !== undefined && given[field] !== null).map((field) => [field, given[field]]))
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

// RFC 7396: what is no longer there becomes null. Undefined: nothing differs.
export function mergePatch(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return JSON.stringify(before) === JSON.stringify(after) ? undefined : after
  const patch: Record<string, unknown> = {}
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const change = name in after ? (name in before ? mergePatch(before[name], after[name]) : after[name]) : null
    if (change !== undefined) patch[name] = change
  }
  return Object.keys(patch).length ? patch : undefined
}
