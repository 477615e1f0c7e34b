"""Several threads that extend one model: each is answered or refused by name, and the model is whole afterwards."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hf.models import tiny
from hf.traces import logits, trace

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
ROUNDS = 8


@pytest.mark.parametrize("lines", [("yarn:factor=4", "yarn:factor=4"), ("yarn:factor=4", "rerope:window=8")])
def test_two_threads_that_extend_one_model(lines):
    model = tiny("llama", num_hidden_layers=2)
    base, before = logits(model, IDS), trace(model)
    with ThreadPoolExecutor(len(lines)) as pool:
        for _ in range(ROUNDS):
            barrier = threading.Barrier(len(lines))

            def put_on(line, barrier=barrier):
                barrier.wait()
                try:
                    return rw.extend(model, line)
                except rw.Conflict as refused:
                    return refused

            answers = [future.result() for future in [pool.submit(put_on, line) for line in lines]]
            present = handle_of(model)
            assert present in answers
            assert all(answer is present or isinstance(answer, rw.Conflict) for answer in answers)
            present.remove()
            assert trace(model) == before
    assert torch.equal(logits(model, IDS), base)
