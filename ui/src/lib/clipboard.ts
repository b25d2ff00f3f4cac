// Copy text. A page served without TLS has no clipboard API: there a hidden field is selected and copied.
export async function copied(text: string): Promise<boolean> {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text)
      return true
    } catch {
      // Not allowed: the older way may be.
    }
  }
  const field = document.createElement('textarea')
  field.value = text
  const home = document.activeElement as HTMLElement | null
  const place = home?.closest('dialog') ?? document.body // Outside an open dialog nothing can be selected.
  place.append(field)
  field.select()
  const isDone = document.execCommand('copy')
  field.remove()
  home?.focus()
  return isDone
}
