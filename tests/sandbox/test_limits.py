import dataclasses

import pytest

from veriloop.sandbox.limits import Limits


def test_the_wall_limit_is_a_multiple_of_the_cpu_limit_unless_given():
    assert Limits(cpu_s=2).wall == 7
    assert Limits(cpu_s=2, wall_s=0.5).wall == 0.5


NO_BOUNDS = ("processes", "counted")


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(Limits) if field.name not in NO_BOUNDS]
)
@pytest.mark.parametrize("value", [0, -1])
def test_every_bound_must_be_positive(name, value):
    with pytest.raises(ValueError, match=f"Limits.{name} must be positive, got {value}"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"memory_mb": 256.0}, "Limits.memory_mb must be an integer, got 256.0"),
        ({"threads": 4.5}, "Limits.threads must be an integer, got 4.5"),
        ({"disk_mb": "32"}, "Limits.disk_mb must be an integer, got '32'"),
        ({"inodes": None}, "Limits.inodes must be an integer, got None"),
        ({"cpu_s": None}, "Limits.cpu_s must be a number, got None"),
        ({"memory_mb": float("nan")}, "Limits.memory_mb must be an integer, got nan"),
        ({"cpu_s": float("nan")}, "Limits.cpu_s must be positive, got nan"),
        ({"wall_s": "9"}, "Limits.wall_s must be a number, got '9'"),
        ({"wall_s": float("inf")}, "Limits.wall_s must be at most 2147483647, got inf"),
        ({"memory_mb": 1 << 60}, "Limits.memory_mb must be at most 2147483647"),
    ],
)
def test_a_bound_of_another_kind_or_out_of_range_is_refused_by_name(limit, words):
    with pytest.raises(ValueError, match=words):
        Limits(**limit)


def test_no_further_process_is_the_default_and_a_negative_number_is_refused():
    assert Limits().processes == 0
    with pytest.raises(ValueError, match=r"Limits\.processes"):
        Limits(processes=-1)


def test_memory_is_counted_in_one_of_three_ways():
    assert [Limits(counted=way).counted for way in ("address", "data", "group")]
    with pytest.raises(ValueError, match="one of address, data, group, got 'pages'"):
        Limits(counted="pages")


def test_limits_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().cpu_s = 9
