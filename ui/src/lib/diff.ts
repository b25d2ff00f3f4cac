// A line diff of two definitions.
export type Line = { kind: 'same' | 'gone' | 'new'; text: string }

// Keys are sorted, so that only differences in meaning show.
const linesOf = (value: unknown): string[] => JSON.stringify(value, (_, inner: unknown) => sorted(inner), 2).split('\n')
const sorted = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value

export function diff(before: unknown, after: unknown): Line[] {
  const a = linesOf(before)
  const b = linesOf(after)
  // Longest common subsequence by dynamic programming; definitions are short.
  const table: Uint16Array[] = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1))
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1) table[i]![j] = a[i] === b[j] ? table[i + 1]![j + 1]! + 1 : Math.max(table[i + 1]![j]!, table[i]![j + 1]!)
  const found: Line[] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ kind: 'same', text: a[i]! })
      i += 1
      j += 1
    } else if (j >= b.length || (i < a.length && table[i + 1]![j]! >= table[i]![j + 1]!)) found.push({ kind: 'gone', text: a[i++]! })
    else found.push({ kind: 'new', text: b[j++]! })
  }
  return found
}
