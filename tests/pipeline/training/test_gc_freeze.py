"""Imports without the collector: it rests inside, and leaves alone what was imported."""

import gc
import importlib
import sys
import weakref

import pytest

from veriloop.pipeline.training.gc_freeze import collecting, lasting


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that nobody has imported."""
    (tmp_path / "never_seen.py").write_text("import gc\nENABLED, KEPT = gc.isenabled(), [[]]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "never_seen", raising=False)
    return "never_seen"


def test_nothing_is_collected_inside_nor_what_was_imported_walked_again(module):
    with lasting():
        made = importlib.import_module(module)
    assert not made.ENABLED and gc.isenabled()
    assert not any(one is made.KEPT for one in gc.get_objects())  # of the permanent generation


def test_where_nothing_was_imported_the_collector_finds_all_it_found_before():
    with lasting():
        kept = [[]]
    assert any(one is kept for one in gc.get_objects())


def test_a_collector_that_was_off_stays_off_and_an_error_leaves_it_on():
    with pytest.raises(ImportError), lasting():
        importlib.import_module("there_is_no_such_module")
    assert gc.isenabled()
    gc.disable()
    try:
        with lasting():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_there_inside_is_collected_when_nothing_reaches_it_any_more(module):
    class Model:
        pass

    model, sampler = Model(), Model()
    model.itself, sampler.itself = model, sampler
    first, second = weakref.ref(model), weakref.ref(sampler)
    with collecting():
        with lasting():
            importlib.import_module(module)
        del model
        gc.collect()
        assert first() is not None
    assert first() is None
    del sampler
    gc.collect()
    assert second() is None


def test_what_was_set_aside_before_is_not_walked_again():
    kept = [[]]
    gc.freeze()
    with collecting():
        pass
    assert not any(one is kept for one in gc.get_objects())
