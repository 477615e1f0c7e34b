"""Figures, read by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from serve.conftest import call, client_of, running, until
from serve.fake_engine import FakeEngine


def figures(server):
    text = call(server, "GET", "/metrics").body.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_and_status():
    with running() as server:
        call(server, "GET", "/v1/sessions/anything")
        call(server, "GET", "/v1/sessions/else")
        for path in ("/one", "/two", "/v1/models/x"):
            call(server, "GET", path)
        counted = {
            labels: value for (name, labels), value in figures(server).items() if name == "ropewalk_requests_total"
        }
    assert counted == {
        (("route", "/v1/sessions/{session}"), ("status", "404")): 2,
        (("route", "none"), ("status", "404")): 2,
        (("route", "/v1/models/{model:path}"), ("status", "404")): 1,
    }


def test_the_times_of_tokens_are_counted():
    with running(FakeEngine(pace=0.05)) as server:  # a busy machine sees the first token late
        list(client_of(server).completions.create(model="default", prompt="x", max_tokens=5, n=2, stream=True))
        seen = figures(server)
    assert seen["ropewalk_time_to_first_token_seconds_count", ()] == 2
    assert seen["ropewalk_inter_token_seconds_count", ()] == 8
    assert seen["ropewalk_inter_token_seconds_sum", ()] >= 8 * 0.01


def test_requests_that_are_being_answered_are_counted():
    with running(FakeEngine(pace=0.01)) as server:
        with client_of(server) as client:
            stream = client.completions.create(model="default", prompt="x", max_tokens=100, stream=True)
            next(iter(stream))
            assert figures(server)["ropewalk_requests_in_flight", ()] == 1
            stream.close()
        assert until(lambda: figures(server)["ropewalk_requests_in_flight", ()] == 0)


def test_the_engine_speaks_for_itself(server):
    seen = figures(server)
    state = server.engine.state()
    for name in ("running", "waiting", "cache_bytes", "cache_limit", "sessions"):
        assert seen[f"ropewalk_{name}", ()] == getattr(state, name)
    for name in ("prompt_tokens", "completion_tokens", "steps"):
        assert seen[f"ropewalk_{name}_total", ()] == getattr(state, name)
