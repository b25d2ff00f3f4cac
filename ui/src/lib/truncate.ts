// Truncate text to a width, because SVG does not.
const pen = document.createElement('canvas').getContext('2d')
const known = new Map<string, string>()
const KNOWN_MAX = 5_000

export function fit(text: string, width: number, font: string): string {
  const key = `${font}|${width}|${text}`
  let short = known.get(key)
  if (short === undefined) {
    if (known.size >= KNOWN_MAX) known.clear()
    known.set(key, (short = shortened(text, width, font)))
  }
  return short
}

function shortened(text: string, width: number, font: string): string {
  if (!pen) return text
  pen.font = font
  if (pen.measureText(text).width <= width) return text
  let [fits, tooLong] = [0, text.length]
  while (tooLong - fits > 1) {
    const middle = (fits + tooLong) >> 1
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= width) fits = middle
    else tooLong = middle
  }
  return `${text.slice(0, fits)}…`
}
