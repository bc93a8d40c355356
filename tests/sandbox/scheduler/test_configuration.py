"""The driver reads the very file that configures the real scheduler."""

from pathlib import Path

import pytest

from hcs.model import names
from hcs.sandbox.scheduler.configuration import (
    ConfigurationError,
    load_configuration,
    parse_duration,
    read_configuration,
)

SHIPPED = Path(__file__).parents[3] / "config" / "router.yaml"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_what_is_shipped_says_what_the_design_asks_for() -> None:
    configuration = load_configuration(SHIPPED)
    (extender,) = configuration.extenders
    assert configuration.schedulers == {names.SCHEDULER}
    assert extender.node_cache_capable
    assert not extender.ignorable
    assert extender.timeout == 30
    assert (extender.filter_verb, extender.bind_verb, extender.prioritize_verb) == ("filter", "bind", "")
    assert configuration.ignored == {*names.REQUESTED, *names.CHARGED, names.RTOS_GUESTS}
    assert "percentageOfNodesToScore: 100" in SHIPPED.read_text()


def test_the_address_of_the_extender_can_be_given_at_run_time() -> None:
    (extender,) = load_configuration(SHIPPED, extender_url="http://127.0.0.1:9/").extenders
    assert extender.url("filter") == "http://127.0.0.1:9/filter"


def test_without_managed_resources_every_pod_is_the_extenders_business() -> None:
    (extender,) = read_configuration(HEAD + "extenders: [{urlPrefix: 'http://x', nodeCacheCapable: true}]").extenders
    assert extender.wants(frozenset())
    (shipped,) = load_configuration(SHIPPED).extenders
    assert not shipped.wants(frozenset({"cpu"}))
    assert shipped.wants(frozenset({"cpu", names.VRAM}))


def test_defaults_are_those_of_the_real_one() -> None:
    configuration = read_configuration(HEAD + "extenders: [{urlPrefix: 'http://x'}]")
    assert configuration.schedulers == {"default-scheduler"}
    assert configuration.extenders[0].timeout == 5
    assert (configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds) == (1, 10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: 1", "found 0", id="none"),
        pytest.param(f"{HEAD}---\n{HEAD}", "found 2", id="two"),
        pytest.param("a: [", "cannot read", id="no-yaml"),
        pytest.param(HEAD.replace("/v1", "/v1beta3"), "v1beta3", id="other-version"),
        pytest.param(HEAD + "extenders: [{urlPrefix: u, filterverb: f}]", "filterverb", id="typing-mistake"),
        pytest.param(
            HEAD + "extenders: [{urlPrefix: u, bindVerb: b}, {urlPrefix: w, bindVerb: b}]", "only one", id="two-binders"
        ),
        pytest.param(HEAD + "extenders: [{urlPrefix: u, httpTimeout: 30}]", "httpTimeout", id="number-as-duration"),
        pytest.param(HEAD + "extenders: [{urlPrefix: u, filterVerb: f, preemptVerb: p}]", "imitated", id="whole-nodes"),
        pytest.param(HEAD + "extenders: [{urlPrefix: u, filterVerb: f}]", "nodeCacheCapable", id="whole-nodes"),
    ],
)
def test_what_the_real_one_would_refuse_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_configuration(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"scheduler\.yaml"):
        load_configuration(tmp_path / "scheduler.yaml")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1500ms", 1.5), ("2m", 120), ("1h", 3600), ("1.5s", 1.5)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "s", "1d", "-1s", ""])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ConfigurationError, match="duration"):
        parse_duration(text)
