"""Linear algebra keeps to one thread while it is asked to, and not after."""

from threadpoolctl import threadpool_info

from hcs.predict.threads import single_threaded


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread_inside_and_as_before_outside() -> None:
    before = threads()
    assert single_threaded(threads)() <= {1}
    assert threads() == before
