// Actions on a job; each confirms its result in a toast.
import { ask, post } from './api'
import { moment, some } from './format'
import { live } from './live.svelte'
import { attempt, toasts } from './toasts.svelte'
import type { SkippedNext, TriggeredRun } from './types.gen'

export const trigger = (id: string, name: string) =>
  attempt(async () => {
    const made = await post<TriggeredRun>(`/v1/jobs/${id}/trigger`)
    live.touch()
    toasts.tell(`Triggered ${name}: the run is ${made.state.replace('_', ' ')}.`, { text: 'View run', path: `/runs/${made.run_id}` })
  })

export const pause = (id: string, name: string, reason: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/pause`, { reason: reason || 'paused in the dashboard' })
    live.touch()
    toasts.tell(`Paused ${name}. It does not fire until you resume it.`)
  })

export const resume = (id: string, name: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/resume`)
    live.touch()
    toasts.tell(`Resumed ${name}.`)
  })

export const skipNext = (id: string, name: string) =>
  attempt(async () => {
    const told = await post<SkippedNext>(`/v1/jobs/${id}/skip-next`)
    live.touch()
    toasts.tell(`${name} will skip its fire at ${moment(told.scheduled_at)}.`)
  })

export const remove = (id: string, name: string, stops: boolean) =>
  attempt(async () => {
    const told = await ask<{ stopping: number }>('DELETE', `/v1/jobs/${id}`, { query: { running: stops ? 'stop' : 'keep' } })
    live.touch()
    toasts.tell(`Deleted ${name}${told.stopping ? `; cancelling ${some(told.stopping, 'running run')}` : ''}.`)
  })
