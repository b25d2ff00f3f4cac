// The policies of a job that its definition sets, each as a label and a phrase.
import { some, spelled } from './format'
import type { Job, RunDefinition } from './types.gen'

type Fields = Record<string, unknown>
const words = (text: unknown): string => String(text).replaceAll('_', ' ')
const length = (value: unknown): string => spelled(value as string | number)

export function policiesOf(job: Job | RunDefinition): [string, string][] {
  const schedule = ('schedule' in job ? (job.schedule ?? {}) : {}) as Fields
  const found: [string, string | undefined][] = [
    ['Retries', retries(job.retry as Fields | null)],
    ['Timeout', job.timeout ? `${length(job.timeout)} per attempt` : undefined],
    ['Expires', job.expires_after ? `${length(job.expires_after)} after its scheduled time` : undefined],
    ['Redacted', (job.redact as string[] | undefined)?.join(', ')],
    ['Concurrency', job.concurrency ? concurrency(job.concurrency as unknown as Fields) : undefined],
    ['Rate limit', job.rate_limit ? rateLimit(job.rate_limit as unknown as Fields) : undefined],
    ['Jitter', schedule.jitter ? `up to ${length((schedule.jitter as Fields).max)}, per ${words((schedule.jitter as Fields).per ?? 'job')}` : undefined],
    ['Misfire', schedule.misfire ? rule(schedule.misfire as Fields) : undefined],
    ['Overlap', schedule.overlap ? rule(schedule.overlap as Fields) : undefined],
    ['Calendars', (schedule.calendars as Fields[] | undefined)?.map((one) => `${words(one.mode ?? 'exclude')} ${String(one.name)}`).join(', ')],
    ['Run limit', schedule.max_runs ? some(Number(schedule.max_runs), 'time') : undefined],
    ['On end', job.on_end ? callback(job.on_end as unknown as Fields) : undefined],
    ['On failure', job.on_failure ? callback(job.on_failure as unknown as Fields) : undefined],
  ]
  return found.filter((one): one is [string, string] => Boolean(one[1]))
}

function retries(retry: Fields | null): string | undefined {
  if (!retry?.max_attempts) return undefined
  const wait = retry.base ? `, ${words(retry.policy ?? 'exponential')} from ${length(retry.base)}${retry.cap ? ` up to ${length(retry.cap)}` : ''}` : ''
  return `up to ${some(Number(retry.max_attempts), 'attempt')}${wait}`
}

const concurrency = (given: Fields): string => (given.order === 'fifo' ? `one at a time in FIFO order, key ${String(given.key)}` : `at most ${some(Number(given.limit ?? 1), 'run')} at once, key ${String(given.key)}`)
const rateLimit = (given: Fields): string => `${String(given.limit)} starts per ${length(given.per ?? 'PT1S')}, key ${String(given.key)}${given.burst ? `, burst ${String(given.burst)}` : ''}`
const rule = (fields: Fields): string => `${words(fields.policy ?? '')}${fields.grace ? `, ${length(fields.grace)} grace period` : ''}`
const callback = (fields: Fields): string => Object.entries(fields).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ')
