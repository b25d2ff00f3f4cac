// The name of what the open screen shows, for the window title.
export const page = $state({ name: '' })

// When the focused element disappears, such as a button after its action, move the focus to the content, not to the top.
export function keepFocus(content: HTMLElement): () => void {
  let last: EventTarget | null = null
  const remember = (event: FocusEvent) => (last = event.target)
  const watch = new MutationObserver(() => {
    if (!(last instanceof Element) || last.isConnected) return
    last = null
    if (!document.activeElement || document.activeElement === document.body) content.focus({ preventScroll: true })
  })
  content.addEventListener('focusin', remember)
  watch.observe(content, { childList: true, subtree: true })
  return () => {
    content.removeEventListener('focusin', remember)
    watch.disconnect()
  }
}
