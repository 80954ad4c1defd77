"""Several threads in one process: attributions take turns, and whoever merely runs a model is left alone."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small_models import Small, patches, tiny_vit
from torch import nn

import lrptrain
from lrptrain.relevance.model.preserve import preserved
from lrptrain.relevance.model.process_wide import eager
from lrptrain.relevance.passes.interception import intercepted

METHODS = ("transformer_attribution", "attnlrp", "input_x_gradient")


def vit():
    return tiny_vit().double().eval()


def scores(model, method):
    return lrptrain.attribute(model, patches(2), 1, method).scores


@pytest.mark.parametrize("shared", [True, False])
def test_threads_that_explain_get_what_one_thread_gets(shared):
    models = [vit(), Small()]
    jobs = [(model, method) for model in models for method in METHODS] * 3
    expected = [scores(*job) for job in jobs]
    if not shared:
        jobs = [(vit() if model is models[0] else Small(), method) for model, method in jobs]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda job: scores(*job), jobs))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_thread_that_runs_a_model_is_neither_recorded_nor_disturbed():
    """The model that is explained, and another one, which an embedding and dropout make sensitive to what is global."""
    explained, other = vit(), nn.Sequential(nn.Embedding(9, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    x, ids = patches(2), torch.arange(6).view(2, 3)
    expected = explained(x), other(ids), scores(explained, "attnlrp"), len(lrptrain.record(explained, x).tape.nodes)
    finished = threading.Event()
    outputs = []

    def serve():
        while not finished.is_set():
            outputs.append((explained(x), other(ids)))

    with ThreadPoolExecutor(2) as pool:
        servers = [pool.submit(serve) for _ in range(2)]
        for _ in range(4):
            assert torch.equal(scores(explained, "attnlrp"), expected[2])
            assert len(lrptrain.record(explained, x).tape.nodes) == expected[3]
        finished.set()
        assert all(server.result() is None for server in servers)
    assert outputs
    assert all(torch.equal(one, expected[0]) and torch.equal(two, expected[1]) for one, two in outputs)


def test_a_thread_that_listens_hears_its_own_calls_only():
    model, x = vit(), patches(2)
    with ThreadPoolExecutor(1) as pool, intercepted(model, 2, True) as calls:
        other = pool.submit(model, x).result()
        assert calls == []
        torch.testing.assert_close(model(x), other)
        assert len(calls) == 1
        pool.submit(lrptrain.attribute, model, x).result()
    assert "forward" not in vars(model)
    torch.testing.assert_close(calls[0].output, model(x))


def test_listeners_of_two_threads_may_leave_in_any_order():
    model = vit()
    first, second = intercepted(model, 2, False), intercepted(model, 2, False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert "forward" in vars(model)
    second.__exit__(None, None, None)
    assert "forward" not in vars(model)
    model(patches(2))


def stance() -> str:
    from torch._dynamo import eval_frame

    return eval_frame._stance.stance


def test_the_compiler_is_told_to_wait_until_the_last_thread_leaves():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with eager():
            inside.set()
            leave.wait(10)

    with torch.compiler.set_stance("eager_on_recompile"), ThreadPoolExecutor(1) as pool:
        with eager():
            with eager():
                waiting = pool.submit(other)
                inside.wait(10)
            assert stance() == "force_eager"
        assert stance() == "force_eager"
        leave.set()
        waiting.result()
        assert stance() == "eager_on_recompile"
    assert stance() == "default"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("within", [True, False])
def test_a_process_forked_while_a_thread_explains_does_not_hang(within):
    """By another thread, whose hold nobody would ever release; or by the one that holds it, in the block."""
    model, inside, leave = Small(), threading.Event(), threading.Event()

    def other():
        with preserved(model), eager():
            inside.set()
            leave.wait(20)

    def child():
        with preserved(Small()), eager():
            return stance() == "force_eager"

    with ThreadPoolExecutor(1) as pool:
        if within:
            with preserved(model):
                assert forked(child)
        else:
            waiting = pool.submit(other)
            inside.wait(20)
            assert forked(child)
            leave.set()
            waiting.result()


def forked(work) -> bool:
    """Whether the work of a forked process is done, and returns true, in ten seconds."""
    import signal
    import time

    process = os.fork()
    if not process:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    for _ in range(1000):
        finished, status = os.waitpid(process, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False
