// What the screen that is open shows, by name: it stands in the title of the window, so that tabs can be told apart.
export const page = $state({ name: '' })

// When what was focused is gone, as a button is that has done its work, the keyboard goes on from the content and not from the top.
export function keepFocus(content: HTMLElement): () => void {
  let last: EventTarget | null = null
  const note = (event: FocusEvent) => (last = event.target)
  const watch = new MutationObserver(() => {
    if (!(last instanceof Element) || last.isConnected) return
    last = null
    if (!document.activeElement || document.activeElement === document.body) content.focus({ preventScroll: true })
  })
  content.addEventListener('focusin', note)
  watch.observe(content, { childList: true, subtree: true })
  return () => {
    content.removeEventListener('focusin', note)
    watch.disconnect()
  }
}
