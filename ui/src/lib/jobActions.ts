// Actions on a job; each confirms its result in a toast.
import { ask, post } from './api'
import { moment, some } from './format'
import { live } from './live.svelte'
import { attempt, toasts } from './toasts.svelte'
import type { SkippedNext, TriggeredRun } from './types.gen'

export const trigger = (id: string, name: string) =>
  attempt(async () => {
    const response = await post<TriggeredRun>(`/v1/jobs/${id}/trigger`)
    live.touch()
    toasts.show(`Triggered ${name}: the run is ${response.state.replace('_', ' ')}.`, { text: 'View run', path: `/runs/${response.run_id}` })
  })

export const pause = (id: string, name: string, reason: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/pause`, { reason: reason || 'paused in the dashboard' })
    live.touch()
    toasts.show(`Paused ${name}. It does not fire until you resume it.`)
  })

export const resume = (id: string, name: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/resume`)
    live.touch()
    toasts.show(`Resumed ${name}.`)
  })

export const skipNext = (id: string, name: string) =>
  attempt(async () => {
    const response = await post<SkippedNext>(`/v1/jobs/${id}/skip-next`)
    live.touch()
    toasts.show(`${name} will skip its fire at ${moment(response.scheduled_at)}.`)
  })

export const remove = (id: string, name: string, stops: boolean) =>
  attempt(async () => {
    const response = await ask<{ stopping: number }>('DELETE', `/v1/jobs/${id}`, { query: { running: stops ? 'stop' : 'keep' } })
    live.touch()
    toasts.show(`Deleted ${name}${response.stopping ? `; cancelling ${some(response.stopping, 'running run')}` : ''}.`)
  })
