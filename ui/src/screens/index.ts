// The screens there are: where each is, what it is called, and, for those in the navigation, its icon.
import type { Component } from 'svelte'
import Dead from './Dead.svelte'
import Job from './Job.svelte'
import JobForm from './JobForm.svelte'
import Jobs from './Jobs.svelte'
import Overview from './Overview.svelte'
import Queues from './Queues.svelte'
import Run from './Run.svelte'
import Runs from './Runs.svelte'

export type Screen = { path: string; place: string; title: string; screen: Component; icon?: string }

export const SCREENS: Screen[] = [
  { path: '/overview', place: 'overview', title: 'Overview', screen: Overview, icon: 'overview' },
  { path: '/jobs', place: 'jobs', title: 'Jobs', screen: Jobs, icon: 'jobs' },
  { path: '/jobs/new', place: 'jobs', title: 'New job', screen: JobForm },
  { path: '/jobs/:id/edit', place: 'jobs', title: 'Edit job', screen: JobForm },
  { path: '/jobs/:id', place: 'jobs', title: 'Job', screen: Job },
  { path: '/runs', place: 'runs', title: 'Runs', screen: Runs, icon: 'runs' },
  { path: '/runs/:id', place: 'runs', title: 'Run', screen: Run },
  { path: '/dead', place: 'dead', title: 'Dead letters', screen: Dead, icon: 'skull' },
  { path: '/queues', place: 'queues', title: 'Queues', screen: Queues, icon: 'queues' },
]

export function screenOf(steps: string[]): Screen | undefined {
  return SCREENS.find(({ path }) => {
    const wanted = path.slice(1).split('/')
    return wanted.length === steps.length && wanted.every((step, number) => step.startsWith(':') || step === steps[number])
  })
}
