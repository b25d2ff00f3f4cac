// The tone and icon of each state.
export const STYLES: Record<string, [string, string]> = {
  succeeded: ['good', 'check'], active: ['good', 'check'], completed: ['quiet', 'check'], closed: ['good', 'check'], serving: ['good', 'check'],
  running: ['accent', 'play'], ready: ['accent', 'dot'], scheduled: ['quiet', 'clock'], waiting: ['quiet', 'clock'], blocked: ['warn', 'barrier'],
  retrying: ['warn', 'retry'], snoozed: ['quiet', 'clock'], paused: ['warn', 'pause'], cancelling: ['warn', 'stop'],
  dead: ['bad', 'skull'], failed: ['bad', 'cross'], timed_out: ['bad', 'clock'], lost: ['bad', 'alert'], open: ['bad', 'cross'],
  cancelled: ['quiet', 'stop'], expired: ['calm', 'clock'], skipped: ['calm', 'skip'], fenced: ['quiet', 'barrier'], half_open: ['warn', 'retry'],
  error: ['bad', 'cross'], warning: ['warn', 'alert'], notice: ['accent', 'info'], well: ['good', 'check'], changed: ['warn', 'alert'],
  suspended: ['bad', 'pause'], revoked: ['quiet', 'stop'],
  unserved: ['bad', 'alert'], idle: ['quiet', 'dot'], overloaded: ['bad', 'alert'], draining: ['warn', 'stop'], drained: ['quiet', 'stop'], stalled: ['bad', 'alert'],
}
export const styleOf = (state: string): [string, string] => STYLES[state] ?? ['quiet', 'dot']
