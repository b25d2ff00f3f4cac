// Skip reasons in words. Any other reason, such as a handler's error, is shown unchanged.
const WORDS: Record<string, string> = {
  skipped_overlap: 'the previous run was still running',
  skipped_misfire: 'misfire: its scheduled time had passed',
  skipped_paused: 'the job was paused',
  skipped_calendar: 'excluded by a calendar',
  skipped_on_request: 'skipped on request',
  skipped_edit: 'the schedule was edited',
  skipped_condition: 'a dependency did not end as required',
}
export const reasonText = (reason: string): string => WORDS[reason] ?? reason
