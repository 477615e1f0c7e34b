"""Several threads with one model: each has what it asked for or a named refusal, and the model is whole afterwards."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.hf.attach.handle import handle_of

from hf.models import tiny
from hf.traces import logits, trace

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
PAIRS = [("yarn:factor=4", "yarn:factor=4"), ("yarn:factor=4", "rerope:window=8"), ("kerple", "log_n")]
ROUNDS = 6


@pytest.fixture
def model():
    return tiny("llama", num_hidden_layers=2)


def together(*tasks):
    """Run all at once; what a task raised is its result."""
    barrier = threading.Barrier(len(tasks))

    def begin(task):
        barrier.wait()
        try:
            return task()
        except RopewalkError as refused:
            return refused

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(begin, task) for task in tasks]]


def alone(model, text):
    with rw.extended(model, text):
        return logits(model, IDS)


@pytest.mark.parametrize("pair", PAIRS)
def test_blocks_of_two_threads(model, pair):
    """Both have their extension, or the second is refused; never another model's numbers."""
    base, before = logits(model, IDS), trace(model)
    expected = [alone(model, text) for text in pair]
    done = 0
    for _ in range(ROUNDS):
        answers = together(*[lambda text=text: alone(model, text) for text in pair])
        for got, right in zip(answers, expected, strict=True):
            if not isinstance(got, rw.Conflict):
                torch.testing.assert_close(got, right, rtol=0, atol=1e-5)
                done += 1
        assert handle_of(model) is None
    assert done >= ROUNDS
    assert torch.equal(logits(model, IDS), base)
    assert trace(model) == before


@pytest.mark.parametrize("pair", PAIRS)
def test_two_threads_extend_and_remove(model, pair):
    base, before = logits(model, IDS), trace(model)
    for _ in range(ROUNDS):
        handles = together(*[lambda text=text: rw.extend(model, text) for text in pair])
        put_on = [handle for handle in handles if not isinstance(handle, rw.Conflict)]
        assert put_on
        assert all(handle is handle_of(model) for handle in put_on)
        together(*[handle.remove for handle in put_on * 2])
        assert handle_of(model) is None
    assert torch.equal(logits(model, IDS), base)
    assert trace(model) == before


@pytest.mark.nightly
@pytest.mark.parametrize("text", ["yarn:factor=4", "rerope:window=8", "kerple"])
def test_a_forward_meets_no_model_that_is_half_extended(model, text):
    """While another thread extends, looks into it and removes, it gives one of two answers or is refused by name."""
    base, before, under = logits(model, IDS), trace(model), alone(model, text)
    for _ in range(ROUNDS // 2):
        over = threading.Event()

        def change(over=over):
            try:
                with rw.extended(model, text):
                    logits(model, IDS)
                rw.inspect(model)
            finally:
                over.set()

        def compute(over=over):
            answers = []
            while not over.is_set():
                try:
                    answers.append(model(input_ids=IDS, use_cache=False).logits.detach())
                except RopewalkError:
                    time.sleep(0.002)  # a loop that only raises would hardly let the other thread compute
            return answers

        changed, answers = together(change, compute)
        assert changed is None
        for got in answers:
            assert min(float((got - right).abs().max()) for right in (base, under)) < 1e-4
    assert torch.equal(logits(model, IDS), base)
    assert trace(model) == before


@contextmanager
def paused(model):
    """A forward of another thread in the middle of the model: its result, and what lets it go on."""
    inside, go_on = threading.Event(), threading.Event()

    def pause(*_):
        inside.set()
        assert go_on.wait(60)

    hook = model.model.layers[0].register_forward_hook(pause)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(logits, model, IDS)
        assert inside.wait(60)
        try:
            yield running, go_on
        finally:
            go_on.set()
            running.result()
            hook.remove()


def test_removal_waits_for_a_forward_and_lets_none_begin(model):
    """Removed in the middle of one, the rest of the layers would see keys without positions."""
    expected = alone(model, "rerope:window=8")
    handle = rw.extend(model, "rerope:window=8")
    with paused(model) as (running, go_on), ThreadPoolExecutor(1) as pool:
        removing = pool.submit(handle.remove)
        while handle.forwards._open:
            time.sleep(0.002)
        with pytest.raises(rw.Conflict, match="another thread extends this model"):
            logits(model, IDS)
        assert not removing.done()
        go_on.set()
        assert torch.equal(running.result(), expected)
        removing.result()
    assert handle_of(model) is None


def test_a_forward_that_does_not_end_leaves_the_extension_on(model, monkeypatch):
    monkeypatch.setattr("ropewalk.hf.probe.host.FORWARD_TIMEOUT", 0.05)
    expected = alone(model, "kerple")
    handle = rw.extend(model, "kerple")
    with paused(model), pytest.raises(rw.Conflict, match="another thread computes with this model"):
        handle.remove()
    assert torch.equal(logits(model, IDS), expected)
    handle.remove()


def test_a_forward_that_fails_has_ended(model):
    handle = rw.extend(model, "kerple")
    with pytest.raises(Exception):  # noqa: B017, PT011
        model(input_ids=IDS, past_key_values="no cache")
    together(handle.remove)
    assert handle_of(model) is None


def test_blocks_within_each_other_end_with_the_outer_one(model):
    with rw.extended(model, "kerple") as outer:
        with rw.extended(model, "kerple") as inner:
            assert inner is outer
        assert handle_of(model) is outer
    assert handle_of(model) is None
    handle = rw.extend(model, "kerple")
    with rw.extended(model, "kerple"):
        pass
    assert handle_of(model) is handle
