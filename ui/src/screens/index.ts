// The screens there are: where each is, what it is called, and, for those in the navigation, its icon.
import type { Component } from 'svelte'
import type { Need } from '../lib/session.svelte'
import Audit from './Audit.svelte'
import Dead from './Dead.svelte'
import Destination from './Destination.svelte'
import Destinations from './Destinations.svelte'
import File from './File.svelte'
import Files from './Files.svelte'
import Job from './Job.svelte'
import JobForm from './JobForm.svelte'
import Jobs from './Jobs.svelte'
import Keys from './Keys.svelte'
import Overview from './Overview.svelte'
import Queues from './Queues.svelte'
import Run from './Run.svelte'
import Runs from './Runs.svelte'
import System from './System.svelte'
import Tenant from './Tenant.svelte'
import Workflow from './Workflow.svelte'
import Workflows from './Workflows.svelte'

export type Screen = { path: string; place: string; title: string; screen: Component; icon?: string; needs?: Need }

export const SCREENS: Screen[] = [
  { path: '/overview', place: 'overview', title: 'Overview', screen: Overview, icon: 'overview' },
  { path: '/jobs', place: 'jobs', title: 'Jobs', screen: Jobs, icon: 'jobs' },
  { path: '/jobs/new', place: 'jobs', title: 'New job', screen: JobForm },
  { path: '/jobs/:id/edit', place: 'jobs', title: 'Edit job', screen: JobForm },
  { path: '/jobs/:id', place: 'jobs', title: 'Job', screen: Job },
  { path: '/runs', place: 'runs', title: 'Runs', screen: Runs, icon: 'runs' },
  { path: '/runs/:id', place: 'runs', title: 'Run', screen: Run },
  { path: '/workflows', place: 'workflows', title: 'Workflows', screen: Workflows, icon: 'workflows' },
  { path: '/workflows/:id', place: 'workflows', title: 'Workflow', screen: Workflow },
  { path: '/dead', place: 'dead', title: 'Dead letters', screen: Dead, icon: 'skull' },
  { path: '/queues', place: 'queues', title: 'Queues', screen: Queues, icon: 'queues' },
  { path: '/destinations', place: 'destinations', title: 'Destinations', screen: Destinations, icon: 'destinations' },
  { path: '/destinations/:id', place: 'destinations', title: 'Destination', screen: Destination },
  { path: '/files', place: 'files', title: 'As code', screen: Files, icon: 'files' },
  { path: '/files/:name', place: 'files', title: 'File', screen: File },
  { path: '/keys', place: 'keys', title: 'Tenants and keys', screen: Keys, icon: 'keys', needs: 'admin' },
  { path: '/tenants/:tenant', place: 'keys', title: 'Tenant', screen: Tenant, needs: 'operator' },
  { path: '/audit', place: 'audit', title: 'Audit', screen: Audit, icon: 'audit', needs: 'admin' },
  { path: '/system', place: 'system', title: 'System', screen: System, icon: 'system', needs: 'operator' },
]

export function screenOf(steps: string[]): Screen | undefined {
  return SCREENS.find(({ path }) => {
    const wanted = path.slice(1).split('/')
    return wanted.length === steps.length && wanted.every((step, number) => step.startsWith(':') || step === steps[number])
  })
}
