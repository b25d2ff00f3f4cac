"""Every field of a job's spec is compiled and given back as it was, and a file says it as HTTP does."""

import msgspec
import pytest

from duly.domain.fields import non_defaults
from duly.domain.jobs.compile import compile_recurring, compile_spec
from duly.domain.jobs.job import Recurring
from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.spec import JobSpec, PolicySpec, RetryPolicy
from duly.domain.jobs.spec_of import spec_of
from duly.domain.triggers.schedule.options import PARTS
from duly.domain.triggers.spec import Schedule
from tests.every_field import AT, SCHEDULE, SPECS, untried

NAMED = [kind for kind, spec in SPECS.items() if spec.name is not None]


def test_every_field_is_set_in_one_of_them():
    assert untried() == []
    assert set(SCHEDULE) == {field.name for field in msgspec.structs.fields(Schedule)} == {"trigger", *PARTS}


@pytest.mark.parametrize("kind", SPECS)
def test_a_spec_is_compiled_and_given_back(kind):
    assert spec_of(compile_spec(SPECS[kind], AT)) == SPECS[kind]


@pytest.mark.parametrize("kind", SPECS)
def test_a_spec_is_written_as_json_and_read_again(kind):
    assert msgspec.json.decode(msgspec.json.encode(SPECS[kind]), type=JobSpec) == SPECS[kind]
    assert msgspec.convert(non_defaults(SPECS[kind]), JobSpec) == SPECS[kind]


@pytest.mark.parametrize("kind", NAMED)
def test_the_entry_of_a_file_is_the_same_spec(kind):
    spec = SPECS[kind]
    entry = {name: value for name, value in non_defaults(spec).items() if name != "name"}

    job = read_manifest({"source": "s", "jobs": {str(spec.name): entry}}).jobs[str(spec.name)].job

    assert spec_of(job) == spec
    assert msgspec.structs.replace(job, owner="api", source=None) == compile_recurring(spec, AT)


@pytest.mark.parametrize("field", PolicySpec.__struct_fields__)
def test_a_field_alone_is_given_back_alone(field):
    given = {field: getattr(SPECS["command" if field == "expires_at" else "function"], field)}
    spec = JobSpec(target=SPECS["function"].target, **given)
    back = spec_of(compile_spec(spec, AT))

    is_policy = field not in ("retry", "expires_at", "expires_after", "redact")
    assert back == (msgspec.structs.replace(spec, retry=RetryPolicy()) if is_policy else spec)


def test_a_named_job_without_a_schedule_fires_once():
    job = compile_spec(JobSpec(target=SPECS["function"].target, name="once"), AT)

    assert isinstance(job, Recurring)
    assert job.schedule["trigger"]["type"] == "at"
