"""One guard over BLAS's thread count: entered and left in any order, by any threads, with exceptions on the way."""

import queue
import random
import threading
from functools import partial

import pytest
from threadpoolctl import threadpool_limits

from attnsym import _threads
from attnsym._threads import available_workers, one_blas_thread


def counts():
    return [library.num_threads for library in _threads._blas().lib_controllers]


class Caller:
    """A thread that stays alive and does what it is told, one thing after the other."""

    def __init__(self):
        self.asked, self.answered = queue.Queue(), queue.Queue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        for function in iter(self.asked.get, None):
            self.answered.put(function())

    def do(self, function):
        self.asked.put(function)
        return self.answered.get(timeout=20)

    def end(self):
        self.asked.put(None)
        self.thread.join(20)


def leave(guard, error):
    """Leave as a `with` statement does, which after an exception in its body passes it in."""
    assert not guard.__exit__(type(error) if error else None, error, None)


@pytest.mark.parametrize("seed", range(20))
def test_any_interleaving_holds_one_thread_and_gives_the_count_back(seed):
    rng = random.Random(seed)
    others = [Caller(), Caller()]  # beside the test's own thread, which sets the count
    with threadpool_limits(2, user_api="blas"):
        before, inside, entered = counts(), [], 0
        while entered < 5 or inside:
            if entered < 5 and (not inside or rng.random() < 0.5):
                inside.append(one_blas_thread())
                action, entered = inside[-1].__enter__, entered + 1
            else:
                guard = inside.pop(rng.randrange(len(inside)))
                action = partial(leave, guard, rng.choice([None, ValueError("inside")]))
            caller = rng.choice([None, *others])
            action() if caller is None else caller.do(action)
            assert counts() == ([1] * len(before) if inside else before)
            assert available_workers() == max(before)
    for caller in others:
        caller.end()


def test_the_guard_works_where_another_living_thread_set_the_count():
    """Only the first thread that ever set a count is obeyed by threadpoolctl, so the guard may not go through it."""
    first = Caller()
    limits = first.do(lambda: threadpool_limits(2, user_api="blas"))
    before = counts()
    with one_blas_thread():
        assert set(counts()) == {1}
    assert counts() == before
    first.do(limits.restore_original_limits)
    first.end()


def test_a_count_that_somebody_else_changed_meanwhile_is_left_alone():
    with threadpool_limits(1, user_api="blas") as limits:
        library = _threads._blas().lib_controllers[0]
        with one_blas_thread():
            _threads._set_threads(library, 2)
        assert library.num_threads == 2
        _threads._set_threads(library, 1)
    assert limits is not None


class OnOpenMP:
    """A BLAS whose count belongs to the thread."""

    filepath, threading_layer = "libopenmpblas.so", "openmp"

    def __init__(self):
        self.of_thread = threading.local()

    @property
    def num_threads(self):
        return getattr(self.of_thread, "count", 4)

    def set_num_threads(self, count):
        self.of_thread.count = count


def test_under_openmp_every_thread_holds_its_own_count(monkeypatch):
    library = OnOpenMP()
    blas = type("Blas", (), {"lib_controllers": [library]})
    monkeypatch.setattr(_threads, "_blas", lambda: blas)
    seen = []

    def new_worker():
        return lambda task: seen.append((threading.get_ident(), library.num_threads))

    _threads.for_each(200, new_worker, 3)
    assert {count for _, count in seen} == {1}
    assert library.num_threads == 4
    other = Caller()
    with one_blas_thread():
        assert library.num_threads == 1
        assert other.do(lambda: library.num_threads) == 4
    assert library.num_threads == 4
    other.end()


def test_an_exception_in_the_body_gives_the_count_back():
    with threadpool_limits(2, user_api="blas"):
        before = counts()
        with pytest.raises(KeyboardInterrupt), one_blas_thread():
            raise KeyboardInterrupt
        assert counts() == before
