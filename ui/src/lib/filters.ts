// Filters as the API reads them: terms joined by AND.
const PLAIN = /^[^\s"():,<>=*]+$/

export const quotedAlways = (value: string): string => `"${value.replace(/[\\"]/g, '\\$&')}"`
export const quoted = (value: string): string => (PLAIN.test(value) ? value : quotedAlways(value))
export const term = (field: string, value: string): string => (value ? `${field}:${quoted(value)}` : '')
// A prefix match where the value allows it, else an exact match.
export const beginning = (field: string, value: string): string => (value ? `${field}:${PLAIN.test(value) ? `${value}*` : quoted(value)}` : '')
export const joined = (...terms: string[]): string => terms.map((one) => one.trim()).filter(Boolean).join(' AND ')
