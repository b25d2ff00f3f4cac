import { defineConfig } from 'vite'

// The interactive API page, apart from the dashboard: neither has the styles of the other.
export default defineConfig({
  base: '/ui/',
  logLevel: 'warn',
  build: {
    outDir: '../src/duly/dashboard/static',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2_000,
    rollupOptions: { input: 'docs.html' },
  },
})
