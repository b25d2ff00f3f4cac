// Numbers, durations and moments as text. Moments are in local time; UTC is shown on hover.
const dayAndTime = new Intl.DateTimeFormat(undefined, {
  year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
})
const timeOnly = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
const dayAndMinute = new Intl.DateTimeFormat(undefined, {
  weekday: 'short', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23',
})
const whole = new Intl.NumberFormat('en')

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone

export const moment = (text: string): string => dayAndTime.format(new Date(text))
const dayAndSecond = new Intl.DateTimeFormat(undefined, {
  weekday: 'short', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
})

// To the minute; with seconds where it has some.
export const minute = (text: string): string => (new Date(text).getUTCSeconds() ? dayAndSecond : dayAndMinute).format(new Date(text))
export const clock = (text: string): string => timeOnly.format(new Date(text))
// The day of a moment in a time zone: 2026-11-16.
const calendars = new Map<string, Intl.DateTimeFormat>()
export function dayIn(zoneName: string, text: string): string {
  const known = calendars.get(zoneName) ?? new Intl.DateTimeFormat('sv', { timeZone: zoneName, year: 'numeric', month: '2-digit', day: '2-digit' })
  calendars.set(zoneName, known)
  return known.format(new Date(text))
}
export const utc = (text: string): string => new Date(text).toISOString().replace('T', ' ').replace(/(\.\d+)?Z$/, ' UTC')

// A moment relative to now, in whole units rounded down: seconds below 90 s, minutes below 90 min, hours below 36 h, then days.
// The units are those of `span`: 65 s ago, 1 min ago, in 3 h, 2 days ago.
export function ago(text: string, now: number): string {
  const seconds = (new Date(text).getTime() - now) / 1000
  const size = Math.abs(seconds)
  if (size < 1) return 'now'
  const length = size < 90 ? `${Math.floor(size)} s` : size < 5400 ? `${Math.floor(size / 60)} min` : size < 129_600 ? `${Math.floor(size / 3600)} h` : some(Math.floor(size / 86_400), 'day')
  return seconds < 0 ? `${length} ago` : `in ${length}`
}

export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–'
  if (seconds < 0.0005) return '0 ms'
  if (seconds < 0.9995) return `${seconds < 0.00995 ? trim((seconds * 1000).toFixed(1)) : Math.round(seconds * 1000)} ms`
  if (seconds < 10) return `${trim(seconds.toFixed(2))} s`
  if (seconds < 90) return `${trim(seconds.toFixed(1))} s`
  if (seconds >= 600 && seconds < 5400) return `${Math.round(seconds / 60)} min`
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`.replace(' 0 s', '')
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`.replace(' 0 min', '')
  return `${Math.round(seconds / 86_400)} days`
}

// A duration of the API (ISO 8601 or seconds) as text: PT1H30M is 1 h 30 min.
const OF_DAYS: Record<string, string> = { Y: 'year', M: 'month', W: 'week', D: 'day' }
const OF_TIME: Record<string, string> = { H: 'h', M: 'min', S: 's' }
export function spelled(duration: string | number): string {
  if (typeof duration === 'number') return span(duration)
  const [, days = '', time = ''] = /^P([^T]*)(?:T(.+))?$/.exec(duration) ?? []
  const long = [...days.matchAll(/(\d+)([YMWD])/g)].map(([, number, unit]) => some(Number(number), OF_DAYS[unit!]!))
  const brief = [...time.matchAll(/([\d.]+)([HMS])/g)].map(([, number, unit]) => `${number} ${OF_TIME[unit!]}`)
  return [...long, ...brief].join(' ') || duration
}

// Short form for chart axes, where steps may be fractions of a millisecond.
export const brief = (seconds: number | null): string =>
  seconds && seconds < 0.001 ? `${trim((seconds * 1000).toFixed(2))} ms` : seconds === null || seconds < 90 ? span(seconds) : seconds < 5400 ? `${trim((seconds / 60).toFixed(1))} min` : `${trim((seconds / 3600).toFixed(1))} h`

export const between = (from: string | null, to: string | null): number | null =>
  from && to ? (new Date(to).getTime() - new Date(from).getTime()) / 1000 : null

// The value of a number field; null when it is empty.
export const given = (typed: string | number | null | undefined): number | null =>
  typed === '' || typed === null || typed === undefined ? null : Number(typed)

export const count = (number: number): string => whole.format(number)
// Counts on an axis: whole numbers only.
export const countOnAxis = (number: number | null): string => (number !== null && Number.isInteger(number) ? count(number) : '')
export const some = (number: number, one: string, many = `${one}s`): string => `${count(number)} ${number === 1 ? one : many}`
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10))
  return `${trim((bytes / 1024 ** step).toFixed(step ? 1 : 0))} ${units[step]}`
}
export const percent = (share: number | null): string =>
  share === null ? '–' : share === 1 ? '100 %' : `${(Math.floor(share * 1000) / 10).toFixed(1)} %`
export const rate = (number: number): string => (number >= 100 ? count(Math.round(number)) : trim(number.toFixed(number < 0.1 ? 3 : number < 1 ? 2 : 1)))
export const short = (id: string): string => id.slice(-8)

const trim = (text: string): string => (text.includes('.') ? text.replace(/\.?0+$/, '') : text)
