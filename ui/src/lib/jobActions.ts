// What can be done to jobs, with a note when it is done.
import { ask, post } from './api'
import { moment } from './format'
import { live } from './live.svelte'
import { attempt, toasts } from './toasts.svelte'
import type { SkippedNext, TriggeredRun } from './types.gen'

export const trigger = (id: string, name: string) =>
  attempt(async () => {
    const made = await post<TriggeredRun>(`/v1/jobs/${id}/trigger`)
    live.touch()
    toasts.tell(`${name}: the run is ${made.state.replace('_', ' ')}.`, { text: 'Look at the run', path: `/runs/${made.run_id}` })
  })

export const pause = (id: string, name: string, reason: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/pause`, { reason: reason || 'paused in the dashboard' })
    live.touch()
    toasts.tell(`${name} is paused: it fires no more until it is resumed.`)
  })

export const resume = (id: string, name: string) =>
  attempt(async () => {
    await post(`/v1/jobs/${id}/resume`)
    live.touch()
    toasts.tell(`${name} fires again.`)
  })

export const skipNext = (id: string, name: string) =>
  attempt(async () => {
    const told = await post<SkippedNext>(`/v1/jobs/${id}/skip-next`)
    live.touch()
    toasts.tell(`${name}: the fire of ${moment(told.scheduled_at)} is left out.`)
  })

export const remove = (id: string, name: string, stops: boolean) =>
  attempt(async () => {
    const told = await ask<{ stopping: number }>('DELETE', `/v1/jobs/${id}`, { query: { running: stops ? 'stop' : 'keep' } })
    live.touch()
    toasts.tell(`${name} is deleted${told.stopping ? `; ${told.stopping} of its runs are asked to stop` : ''}.`)
  })
