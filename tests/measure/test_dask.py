"""A real cluster: two processes, one of them killed while it works, nothing lost, the same bits."""

import importlib
import os
import signal
import threading
import time

import pytest

from analysis import run_study
from analysis.cli import main

pytestmark = pytest.mark.slow
distributed = pytest.importorskip("distributed")

STUDY = {"d_k": [64, 128], "n_keys": 64, "sampler": "direct", "scale": "sqrt", "replicates": 20_000, "seed": 9}


@pytest.fixture
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as local:
        yield local


@pytest.mark.filterwarnings("ignore")  # distributed's own, about the worker that we kill
def test_a_killed_worker_loses_nothing(cluster):
    killed = []

    def kill_one(client):
        time.sleep(1.0)
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        killed.append((victim, time.monotonic()))

    with distributed.Client(cluster) as client:
        thread = threading.Thread(target=kill_one, args=(client,))
        thread.start()
        found = run_study("entropy", **STUDY, executor=client.get_executor())
        finished = time.monotonic()
        thread.join()
    assert killed
    assert killed[0][1] < finished, "the worker must die while the study runs"
    assert found == run_study("entropy", **STUDY, workers=1)


@pytest.mark.filterwarnings("ignore")
def test_the_command_takes_an_address(cluster, tmp_path, capsys):
    arguments = ["study", "entropy", "--d-k", "4", "--n-keys", "10", "--replicates", "2000", "--json"]
    assert main(arguments) == 0
    alone = capsys.readouterr().out
    assert main([*arguments, "--dask", cluster.scheduler_address]) == 0
    assert capsys.readouterr().out == alone


def test_an_address_that_does_not_answer_is_reported(capsys):
    code = main(["study", "entropy", "--d-k", "4", "--n-keys", "10", "--dask", "tcp://127.0.0.1:9"])
    assert code == 2
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_workers_lack_is_reported(cluster, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        "def first(query, key, scale):\n    return query[:, 0, 0]\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)  # the workers run already
    with (
        distributed.Client(cluster) as client,
        pytest.raises(ImportError, match="a worker cannot load what it is to measure: No module named 'only_here'"),
    ):
        run_study(
            importlib.import_module("only_here").first,
            d_k=2,
            n_keys=1,
            replicates=10,
            executor=client.get_executor(),
        )
