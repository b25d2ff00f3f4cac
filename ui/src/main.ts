import { mount } from 'svelte'
import './app.css'
import App from './App.svelte'
import { router } from './lib/router.svelte'
import { session } from './lib/session.svelte'
import { screenOf } from './screens'

// Who is logged in and what the first screen is made of are asked for at once: neither waits for the other.
void session.find()
screenOf(router.steps)?.load().catch(() => undefined) // Who shows it says what is wrong.

mount(App, { target: document.getElementById('app')! })
