// Filters as the API reads them: terms joined by AND.
const PLAIN = /^[^\s"():,<>=*]+$/

export const quoted = (value: string): string => (PLAIN.test(value) ? value : `"${value.replace(/[\\"]/g, '\\$&')}"`)
export const term = (field: string, value: string): string => (value ? `${field}:${quoted(value)}` : '')
// What begins so, where that can be said; else what is exactly so.
export const beginning = (field: string, value: string): string => (value ? `${field}:${PLAIN.test(value) ? `${value}*` : quoted(value)}` : '')
export const joined = (...terms: string[]): string => terms.map((one) => one.trim()).filter(Boolean).join(' AND ')

// What errors that differ only in numbers, ids and quoted words have in common.
export const likenessOf = (reason: string): string =>
  reason
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, '<id>')
    .replace(/'[^']*'|"[^"]*"/g, '<text>')
    .replace(/0x[0-9a-f]+|\d+(\.\d+)*/gi, '<n>')

const FILTER_MAX = 1_900

// Filters, each short enough to be read, that together choose all of these reasons.
export function ofReasons(reasons: string[], rest: string): string[] {
  const found: string[][] = []
  let size = Infinity
  for (const reason of reasons.map((one) => `"${one.replace(/[\\"]/g, '\\$&')}"`)) {
    if (size + reason.length > FILTER_MAX - rest.length) {
      found.push([])
      size = 0
    }
    found.at(-1)!.push(reason)
    size += reason.length + 1
  }
  return found.map((some) => joined(some.length === 1 ? `reason:${some[0]}` : `reason:(${some.join(',')})`, rest))
}
