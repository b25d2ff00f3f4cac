// The time of day, once a second, for "3 seconds ago".
class Clock {
  now = $state(Date.now())
  constructor() {
    setInterval(() => !document.hidden && (this.now = Date.now()), 1000)
  }
}
export const wall = new Clock()
