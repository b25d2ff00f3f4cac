// Why something was left out, in words; what a handler said is its own words.
const WORDS: Record<string, string> = {
  skipped_overlap: 'the run before it had not ended',
  skipped_misfire: 'it was noticed too late',
  skipped_paused: 'it was paused',
  skipped_calendar: 'a calendar leaves it out',
  skipped_on_request: 'on request',
  skipped_edit: 'the schedule was changed',
  skipped_condition: 'what it waits for did not come about',
}
export const saidOf = (reason: string): string => WORDS[reason] ?? reason
