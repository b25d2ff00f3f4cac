import { mount } from 'svelte'
import './app.css'
import App from './App.svelte'
import { router } from './lib/router.svelte'
import { session } from './lib/session.svelte'
import { screenOf } from './screens'

// The session and the code of the first screen are loaded in parallel.
void session.find()
screenOf(router.steps)?.load().catch(() => undefined) // Who shows it says what is wrong.

mount(App, { target: document.getElementById('app')! })
