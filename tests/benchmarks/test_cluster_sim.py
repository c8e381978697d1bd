"""The simulated fleet: virtual time, servers that batch continuously, and what is said of turns."""

import asyncio
import importlib
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOM = 4


@pytest.fixture
def part(monkeypatch):
    """Function: a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def seconds(clock, main):
    asyncio.run(main)
    return clock.loops[-1].time()


def test_waits_take_no_time_and_happen_in_order(part):
    ended = []

    async def wait(s):
        await asyncio.sleep(s)
        ended.append(s)

    async def main():
        await asyncio.gather(wait(7200), wait(60), wait(3600))

    began = time.monotonic()
    with part("virtual_clock").virtual_time() as clock:
        assert seconds(clock, main()) == pytest.approx(7200, abs=1)
    assert ended == [60, 3600, 7200] and time.monotonic() - began < 60


def test_computing_counts_except_what_stands_for_another_machine(part):
    def compute(s):
        end = time.perf_counter() + s
        while time.perf_counter() < end:
            pass

    async def main(uncounted_s):
        compute(0.2)
        with asyncio.get_running_loop().uncounted():
            compute(uncounted_s)

    with part("virtual_clock").virtual_time() as clock:
        assert 0.2 <= seconds(clock, main(2.0)) < 1.5
        assert clock.loops[-1].computed_s == pytest.approx(clock.loops[-1].time(), abs=0.01)


def test_the_time_of_a_closed_loop_stands_still(part):
    with part("virtual_clock").virtual_time() as clock:
        first = seconds(clock, asyncio.sleep(3))
        time.sleep(0.3)
        assert clock.loops[-1].time() == first


def test_a_wait_for_nothing_is_an_error(part):
    async def main():
        await asyncio.get_running_loop().create_future()

    with part("virtual_clock").virtual_time(), pytest.raises(RuntimeError, match="nothing"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("lengths", "wanted"),
    [
        ([100], 100 * 1.5),
        ([100, 100], 100 * 2.0),  # both in each pass
        ([100, 50], 50 * 2.0 + 50 * 1.5),
        ([10] * (2 * ROOM), 2 * 10 * 3.0),  # the second half waits for room
    ],
)
def test_a_server_takes_the_time_of_its_passes(lengths, wanted, part):
    servers = part("simulated_servers")
    speed = servers.Speed(pass_s=1.0, sequence_s=0.5, prompt_s=0.0, room=ROOM)

    async def main():
        server = servers.Server(asyncio.get_running_loop(), speed)
        await asyncio.gather(*map(server.begin, lengths))

    with part("virtual_clock").virtual_time() as clock:
        assert seconds(clock, main()) == pytest.approx(wanted, abs=0.5)


def test_reading_a_prompt_delays_all_sequences_of_its_server(part):
    servers = part("simulated_servers")
    speed = servers.Speed(pass_s=1.0, sequence_s=0.0, prompt_s=5.0, room=ROOM)
    ended = {}

    async def main():
        loop = asyncio.get_running_loop()
        server = servers.Server(loop, speed)

        async def ask(name, length, after):
            await asyncio.sleep(after)
            await server.begin(length)
            ended[name] = loop.time()

        await asyncio.gather(ask("first", 20, 0), ask("later", 2, 10))

    with part("virtual_clock").virtual_time():
        asyncio.run(main())
    assert ended == pytest.approx({"later": 10 + 5 + 2, "first": 5 + 20 + 5}, abs=0.5)


@pytest.mark.slow
def test_the_client_of_the_product_is_answered_once_per_ask_and_waits_for_the_storage(
    part, tiny_checkpoint
):
    script, servers = part("cluster_sim"), part("simulated_servers")
    asked = []

    def length(seed):
        asked.append(seed)
        return 3 + seed % 5

    speed = servers.Speed(pass_s=1.0, sequence_s=0.0, prompt_s=0.0, room=ROOM)
    how = script.sampling(16, 2)
    urls = [f"http://server-{n}" for n in range(3)]
    turn = script.simulated(
        urls, tiny_checkpoint(), speed, [script.PROMPT] * 12, how, length, weights_gib=20.0
    )
    wanted = sorted(script.seeds(how, 12))
    assert sorted(asked[: len(wanted)]) == wanted  # and once more each for the sum of tokens
    assert turn["tokens"] == sum(3 + seed % 5 for seed in wanted)
    assert turn["sync_s"] == pytest.approx(3 * 20.0 / script.STORAGE_GIB_S, abs=1)
    # 8 asks for each server's 4 places, of up to 7 passes
    assert 6 <= turn["sampling_s"] <= 15 and 0 < turn["driver_s"] < 3


def test_the_parts_that_take_a_tenth_of_a_turn_are_named_in_their_order(part):
    script = part("cluster_sim")
    turns = [
        {"servers": count, "sampling_s": 20.0, "sync_s": files, "groups_s": groups, "driver_s": own}
        for count, files, groups, own in ((1, 1.0, 0.5, 0.1), (10, 1.5, 0.5, 2.5), (99, 99.0, 2, 9))
    ]
    assert script.broken(turns) == [
        "the driver's one thread, at 10 servers",
        "sending weights by shared storage, at 99 servers",
    ]
    assert script.broken(turns[:1]) == []


def test_the_share_of_linear_is_of_the_tokens_a_second_of_the_smallest_fleet(part):
    turns = [
        {"servers": 1, "tokens": 100.0, "sampling_s": 20.0},
        {"servers": 10, "tokens": 900.0, "sampling_s": 20.0},
    ]
    shares = [turn["share"] for turn in part("cluster_sim").shares(turns)]
    assert shares == pytest.approx([1.0, 0.9])


def test_passes_are_measured_at_the_mean_position_of_the_run(part):
    lengths = [3, 10, 512]
    positions = [place for length in lengths for place in range(length)]
    mean = sum(positions) / len(positions)
    assert part("cluster_sim").passes_like(lengths) / 2 == pytest.approx(mean, abs=1)


def test_a_fleet_has_the_means_of_its_turns(part, monkeypatch, tmp_path):
    script, seeds = part("cluster_sim"), []

    def turn(folder, speed, count, seed):
        seeds.append(seed)
        return {"sampling_s": float(seed), "tokens": 10.0 * count}

    monkeypatch.setattr(script, "turn", turn)
    assert script.fleet(tmp_path, None, 7) == {"servers": 7, "sampling_s": 2.0, "tokens": 70.0}
    assert seeds == [1, 2, 3]
