"""Ranks that tests start say why they end, whatever an exit function does."""

import os
import time

import pytest

from tests.forked import called_on_ranks, ends_of_ranks
from veriloop.pipeline.training.stop import ProcessEnd

pytestmark = pytest.mark.slow


def raises():
    ProcessEnd()  # ends the process in an exit function
    raise RuntimeError(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} has no weights")


def waits():
    time.sleep(600)


def test_an_error_of_a_rank_is_said_though_an_exit_function_ends_the_process():
    with pytest.raises(AssertionError, match=r"(?s)exit codes \[.*of 2 has no weights"):
        called_on_ranks(raises, (), 2)


def test_ranks_that_do_not_end_in_time_say_where_they_are():
    codes, said = ends_of_ranks(waits, (), 2, seconds=2)
    assert all(code < 0 for code in codes) and said.count(" in waits") == 2
