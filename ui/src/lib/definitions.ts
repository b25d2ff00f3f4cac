// The definition of a job without its status, and the merge patch between two definitions.
const FIELDS = ['name', 'target', 'payload', 'queue', 'priority', 'schedule', 'on_event', 'retry', 'timeout', 'concurrency', 'rate_limit', 'expires_after', 'expires_at', 'redact', 'on_end', 'on_failure', 'tags'] as const

export type Definition = Record<string, unknown>

export function definitionOf(job: object): Definition {
  const given = job as Record<string, unknown>
  return Object.fromEntries(FIELDS.filter((field) => given[field] !== undefined && given[field] !== null).map((field) => [field, given[field]]))
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

// RFC 7396: a removed field becomes null. Returns undefined when nothing differs.
export function mergePatch(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return JSON.stringify(before) === JSON.stringify(after) ? undefined : after
  const patch: Record<string, unknown> = {}
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const change = name in after ? (name in before ? mergePatch(before[name], after[name]) : after[name]) : null
    if (change !== undefined) patch[name] = change
  }
  return Object.keys(patch).length ? patch : undefined
}
