// The current time, once a second, for relative times.
class Clock {
  now = $state(Date.now())
  constructor() {
    setInterval(() => !document.hidden && (this.now = Date.now()), 1000)
  }
}
export const wall = new Clock()
