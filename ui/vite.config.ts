import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

const LATER = ['Chart', 'Gantt', 'GraphBox', 'NodeTimeline', 'NodeList', 'NodePanel', 'WorkflowGraph']

// What more than one screen is made of; what is large and not for everybody comes with whom it is for.
function isShared(id: string): boolean {
  const part = /\/src\/parts\/(\w+)\./.exec(id)?.[1]
  return part ? !LATER.includes(part) : /\/src\/lib\/(?!layout|truncate|workflows)|\/node_modules\/(svelte|esm-env|clsx)\//.test(id)
}

export default defineConfig({
  plugins: [svelte()],
  base: '/ui/',
  build: {
    outDir: '../src/duly/dashboard/static',
    emptyOutDir: false,  // The page of the API is built first, and empties it.
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // Few files, so that a screen is one request away: what screens share is one of them, each screen another, and all styles a third.
    cssCodeSplit: false,
    rollupOptions: { output: { manualChunks: (id) => (isShared(id) ? 'shared' : undefined) } },
  },
  worker: { format: 'es' },
  server: { proxy: { '/v1': 'http://127.0.0.1:7300' } },
})
