// The policies of a job that its definition sets, each as a label and a phrase.
import { some, spelled } from './format'
import type { Job, RunDefinition } from './types.gen'

type Told = Record<string, unknown>
const words = (text: unknown): string => String(text).replaceAll('_', ' ')
const length = (value: unknown): string => spelled(value as string | number)

export function policiesOf(job: Job | RunDefinition): [string, string][] {
  const schedule = ('schedule' in job ? (job.schedule ?? {}) : {}) as Told
  const found: [string, string | undefined][] = [
    ['Retries', retries(job.retry as Told | null)],
    ['Timeout', job.timeout ? `${length(job.timeout)} per attempt` : undefined],
    ['Expires', job.expires_after ? `${length(job.expires_after)} after its scheduled time` : undefined],
    ['Concurrency', job.concurrency ? concurrency(job.concurrency as unknown as Told) : undefined],
    ['Rate limit', job.rate_limit ? rateLimit(job.rate_limit as unknown as Told) : undefined],
    ['Jitter', schedule.jitter ? `up to ${length((schedule.jitter as Told).max)}, per ${words((schedule.jitter as Told).per ?? 'job')}` : undefined],
    ['Misfire', schedule.misfire ? rule(schedule.misfire as Told) : undefined],
    ['Overlap', schedule.overlap ? rule(schedule.overlap as Told) : undefined],
    ['Calendars', (schedule.calendars as Told[] | undefined)?.map((one) => `${words(one.mode ?? 'exclude')} ${String(one.name)}`).join(', ')],
    ['Run limit', schedule.max_runs ? some(Number(schedule.max_runs), 'time') : undefined],
    ['On end', job.on_end ? goal(job.on_end as unknown as Told) : undefined],
    ['On failure', job.on_failure ? goal(job.on_failure as unknown as Told) : undefined],
  ]
  return found.filter((one): one is [string, string] => Boolean(one[1]))
}

function retries(retry: Told | null): string | undefined {
  if (!retry?.max_attempts) return undefined
  const wait = retry.base ? `, ${words(retry.policy ?? 'exponential')} from ${length(retry.base)}${retry.cap ? ` up to ${length(retry.cap)}` : ''}` : ''
  return `up to ${some(Number(retry.max_attempts), 'attempt')}${wait}`
}

const concurrency = (given: Told): string => (given.order === 'fifo' ? `one at a time in FIFO order, key ${String(given.key)}` : `at most ${some(Number(given.limit ?? 1), 'run')} at once, key ${String(given.key)}`)
const rateLimit = (given: Told): string => `${String(given.limit)} starts per ${length(given.per ?? 'PT1S')}, key ${String(given.key)}${given.burst ? `, burst ${String(given.burst)}` : ''}`
const rule = (told: Told): string => `${words(told.policy ?? '')}${told.grace ? `, ${length(told.grace)} grace period` : ''}`
const goal = (told: Told): string => Object.entries(told).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ')
