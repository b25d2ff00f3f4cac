// The rules of a job's definition, each as a word and a sentence: those that were given, no others.
import { some, spelled } from './format'
import type { Job, RunDefinition } from './types.gen'

type Told = Record<string, unknown>
const words = (text: unknown): string => String(text).replaceAll('_', ' ')
const length = (value: unknown): string => spelled(value as string | number)

export function policiesOf(job: Job | RunDefinition): [string, string][] {
  const schedule = ('schedule' in job ? (job.schedule ?? {}) : {}) as Told
  const found: [string, string | undefined][] = [
    ['Retries', retries(job.retry as Told | null)],
    ['Timeout', job.timeout ? `each attempt ends after ${length(job.timeout)}` : undefined],
    ['Expires', job.expires_after ? `${length(job.expires_after)} after its moment` : undefined],
    ['At once', job.concurrency ? places(job.concurrency as unknown as Told) : undefined],
    ['Rate', job.rate_limit ? turns(job.rate_limit as unknown as Told) : undefined],
    ['Jitter', schedule.jitter ? `up to ${length((schedule.jitter as Told).max)}, per ${words((schedule.jitter as Told).per ?? 'job')}` : undefined],
    ['If missed', schedule.misfire ? rule(schedule.misfire as Told) : undefined],
    ['Overlap', schedule.overlap ? rule(schedule.overlap as Told) : undefined],
    ['Calendars', (schedule.calendars as Told[] | undefined)?.map((one) => `${words(one.mode ?? 'exclude')} ${String(one.name)}`).join(', ')],
    ['Runs at most', schedule.max_runs ? some(Number(schedule.max_runs), 'time') : undefined],
    ['When done', job.on_done ? goal(job.on_done as unknown as Told) : undefined],
    ['When dead', job.on_dead ? goal(job.on_dead as unknown as Told) : undefined],
  ]
  return found.filter((one): one is [string, string] => Boolean(one[1]))
}

function retries(retry: Told | null): string | undefined {
  if (!retry?.max_attempts) return undefined
  const wait = retry.base ? `, ${words(retry.policy ?? 'exponential')} from ${length(retry.base)}${retry.cap ? ` up to ${length(retry.cap)}` : ''}` : ''
  return `${some(Number(retry.max_attempts), 'attempt')} at most${wait}`
}

const places = (gate: Told): string => (gate.order === 'fifo' ? `one after another by key ${String(gate.key)}` : `${String(gate.limit ?? 1)} by key ${String(gate.key)}`)
const turns = (pace: Told): string => `${String(pace.limit)} every ${length(pace.per ?? 'PT1S')} by key ${String(pace.key)}${pace.burst ? `, ${String(pace.burst)} in a burst` : ''}`
const rule = (told: Told): string => `${words(told.policy ?? '')}${told.grace ? `, ${length(told.grace)} of grace` : ''}`
const goal = (told: Told): string => Object.entries(told).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ')
