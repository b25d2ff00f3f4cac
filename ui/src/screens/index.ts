// The screens: path, title and, for those in the navigation, icon. The code of a screen is loaded when it is first opened, or earlier
// while the browser is idle.
import type { Component } from 'svelte'
import type { Need } from '../lib/session.svelte'

export type Screen = { path: string; place: string; title: string; load: () => Promise<{ default: Component }>; icon?: string; needs?: Need }

export const SCREENS: Screen[] = [
  { path: '/overview', place: 'overview', title: 'Overview', load: () => import('./Overview.svelte'), icon: 'overview' },
  { path: '/jobs', place: 'jobs', title: 'Jobs', load: () => import('./Jobs.svelte'), icon: 'jobs' },
  { path: '/jobs/new', place: 'jobs', title: 'Create job', load: () => import('./JobForm.svelte') },
  { path: '/jobs/:id/edit', place: 'jobs', title: 'Edit job', load: () => import('./JobForm.svelte') },
  { path: '/jobs/:id', place: 'jobs', title: 'Job', load: () => import('./Job.svelte') },
  { path: '/runs', place: 'runs', title: 'Runs', load: () => import('./Runs.svelte'), icon: 'runs' },
  { path: '/runs/:id', place: 'runs', title: 'Run', load: () => import('./Run.svelte') },
  { path: '/workflows', place: 'workflows', title: 'Workflows', load: () => import('./Workflows.svelte'), icon: 'workflows' },
  { path: '/workflows/:id', place: 'workflows', title: 'Workflow', load: () => import('./Workflow.svelte') },
  { path: '/dead', place: 'dead', title: 'Dead letters', load: () => import('./DeadLetters.svelte'), icon: 'skull' },
  { path: '/queues', place: 'queues', title: 'Queues', load: () => import('./Queues.svelte'), icon: 'queues' },
  { path: '/destinations', place: 'destinations', title: 'Destinations', load: () => import('./Destinations.svelte'), icon: 'destinations' },
  { path: '/destinations/:id', place: 'destinations', title: 'Destination', load: () => import('./Destination.svelte') },
  { path: '/notifications', place: 'notifications', title: 'Notifications', load: () => import('./Notifications.svelte'), icon: 'notifications' },
  { path: '/files', place: 'files', title: 'Schedules as code', load: () => import('./Files.svelte'), icon: 'files' },
  { path: '/files/:name', place: 'files', title: 'File', load: () => import('./File.svelte') },
  { path: '/keys', place: 'keys', title: 'Tenants and keys', load: () => import('./TenantsAndKeys.svelte'), icon: 'keys', needs: 'admin' },
  { path: '/tenants/:tenant', place: 'keys', title: 'Tenant', load: () => import('./Tenant.svelte'), needs: 'operator' },
  { path: '/audit', place: 'audit', title: 'Audit log', load: () => import('./Audit.svelte'), icon: 'audit', needs: 'admin' },
  { path: '/system', place: 'system', title: 'System', load: () => import('./System.svelte'), icon: 'system', needs: 'operator' },
]

export function screenOf(steps: string[]): Screen | undefined {
  return SCREENS.find(({ path }) => {
    const wanted = path.slice(1).split('/')
    return wanted.length === steps.length && wanted.every((step, number) => step.startsWith(':') || step === steps[number])
  })
}

const CALM_MS = 3_000

// Load the other screens one after another while the browser is idle.
export function fetchAhead(): void {
  const left = SCREENS.map((one) => one.load)
  const next = () => void left.shift()?.().then(() => idle(next), () => undefined)
  setTimeout(next, CALM_MS)
}

const idle = (act: () => void) => ('requestIdleCallback' in window ? requestIdleCallback(act) : setTimeout(act, 500))
