"""Our verifiers and checkpoints inside the programs they are made for, called by their code.

    python benchmarks/peers.py [--quick] [--json FILE] [--only NAME ...]

Each peer's script in benchmarks/inside runs in an environment that is created once under
outputs/cache from requirements/peer-*.txt and uses the project's packages, among them TRL,
transformers and vLLM. Then faults are injected: a copy of the adapter or of the checkpoint is
changed in one place, and the same script must notice. `--quick` runs TRL and transformers without
faults.
"""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from peer_checkpoint import checkpoint_of_a_run
from peer_homes import Fault, Peer, PeerError, claims_of, copy_of, noticed
from publish import arguments, publish, table
from service_speed import serving

OTHER_TEMPLATE = Fault(
    what="another chat template",
    file="checkpoint/chat_template.jinja",
    old="content",
    new="role",
)
PEERS = (
    Peer(
        name="TRL",
        script="of_trl.py",
        faults=(
            Fault(
                what="an error is a 0",
                file="verifiers/adapters/trl.py",
                old="[verdict.score for",
                new="[verdict.score or 0.0 for",
            ),
            Fault(
                what="labels come from any column",
                file="verifiers/adapters/trl.py",
                old="find_label(data, column, verifier)",
                new="find_label(data)",
            ),
        ),
    ),
    Peer(
        name="verl",
        script="of_verl.py",
        needs="peer-verl.txt",
        given=("{root}/verifiers/adapters/verl.py",),
        faults=(
            Fault(
                what="only the status that holds is reported",
                file="verifiers/adapters/verl.py",
                old="{key: float(verdict.status == key) for key in KEYS[1:]}",
                new="{key: 1.0 for key in KEYS[1:] if verdict.status == key}",
            ),
            Fault(
                what="an error has no score",
                file="verifiers/adapters/verl.py",
                old="verdict.score or 0.0",
                new="verdict.score",
            ),
        ),
    ),
    Peer(
        name="OpenRLHF",
        script="of_openrlhf.py",
        needs="peer-openrlhf.txt",
        given=("{url}", "{zero_url}"),
        faults=(
            Fault(
                what="the prompt is left in the query",
                file="verifiers/adapters/openrlhf.py",
                old="response_of(query, prompt)",
                new="query",
            ),
            Fault(
                what="an error is a 0",
                file="verifiers/adapters/openrlhf.py",
                old="score(verdict, on_error) for",
                new="score(verdict, 'zero') for",
            ),
        ),
    ),
    Peer(
        name="prime verifiers",
        script="of_prime.py",
        needs="peer-prime.txt",
        given=("{root}/verifiers/adapters/prime.py", "{url}"),
        with_ours=False,
        faults=(
            Fault(
                what="an error is a 0",
                file="verifiers/adapters/prime.py",
                old="raise RuntimeError(f\"no verdict: {verdict['detail']}\")",
                new="return 0.0",
            ),
            Fault(
                what="the task is taken for its data",
                file="verifiers/adapters/prime.py",
                old='getattr(task, "data", task)',
                new="task.data",
            ),
        ),
    ),
    Peer(
        name="transformers",
        script="of_transformers.py",
        given=("{checkpoint}", "{expected}"),
        with_ours=False,
        faults=(
            Fault(
                what="no end in generation_config.json",
                file="checkpoint/generation_config.json",
                old='"eos_token_id"',
                new='"eos_token_was"',
            ),
            OTHER_TEMPLATE,
        ),
    ),
    Peer(
        name="vLLM",
        script="of_vllm.py",
        given=("{checkpoint}", "{expected}"),
        with_ours=False,
        faults=(OTHER_TEMPLATE,),
    ),
)

QUICK = ("TRL", "transformers")


@contextmanager
def asked_over_http(peers: Sequence[Peer]) -> Iterator[Mapping[str, str]]:
    """Addresses of our reward services, if one of the peers uses them."""
    with ExitStack() as stack:
        if any("url}" in word for peer in peers for word in peer.given):
            flags = ("--verifiers", "number")
            zero = ("--openrlhf-on-error", "zero")
            yield {
                "url": stack.enter_context(serving(*flags)),
                "zero_url": stack.enter_context(serving(*flags, *zero)),
            }
        else:
            yield {}


def outcome(
    peer: Peer,
    folder: Path,
    checkpoint: Path | None,
    urls: Mapping[str, str],
    faults: Sequence[Fault],
) -> dict[str, Any]:
    """The called code, the claims that hold and the noticed faults. Raises PeerError."""
    held = checkpoint if "{checkpoint}" in peer.given else None
    copy = folder / Path(peer.script).stem
    claims = claims_of(peer, copy_of(copy, held, None), urls)
    broken: list[dict[str, Any]] = []
    for n, fault in enumerate(faults):
        root = copy_of(copy.with_name(f"{copy.name}-{n}"), held, fault)
        broken.append({"fault": fault.what, "noticed": noticed(peer, root, urls)})
    return {"peer": peer.name, **claims, "faults": broken}


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that do not hold, and faults that were not noticed."""
    false = [
        f"{row['peer']}: {claim['claim']}: {claim['came']}, not {claim['wanted']}"
        for row in rows
        for claim in row["claims"]
        if not claim["holds"]
    ]
    passed = [
        f"{row['peer']} does not notice: {fault['fault']}"
        for row in rows
        for fault in row["faults"]
        if not fault["noticed"]
    ]
    return false + passed


def line(row: Mapping[str, Any]) -> list[str]:
    """The peer's row in the printed table."""
    claims, faults = row["claims"], row["faults"]
    name = next(iter(row["versions"]))
    return [
        row["peer"], row["versions"][name], row["called"],
        f"{sum(claim['holds'] for claim in claims)} of {len(claims)}",
        f"{sum(fault['noticed'] for fault in faults)} of {len(faults)}",
    ]  # fmt: skip


def main() -> int:
    names = [peer.name for peer in PEERS]
    options = arguments(
        __doc__ or "", only={"nargs": "+", "choices": names, "help": "these peers alone"}
    )
    wanted = QUICK if options.quick else names
    peers = [peer for peer in PEERS if peer.name in (options.only or wanted)]
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="peers-") as temporary, asked_over_http(peers) as urls:
        folder = Path(temporary)
        needs_checkpoint = any("{checkpoint}" in peer.given for peer in peers)
        checkpoint = checkpoint_of_a_run(folder / "run") if needs_checkpoint else None
        for peer in peers:
            try:
                faults = () if options.quick else peer.faults
                rows.append(outcome(peer, folder, checkpoint, urls, faults))
            except PeerError as failure:
                failed.append(f"{peer.name}: {failure}")
    text = table(
        ["peer", "version", "called", "claims that hold", "faults noticed"], list(map(line, rows))
    )
    return publish(options, text, rows, failed=[*failed, *shortfalls(rows)])


if __name__ == "__main__":
    sys.exit(main())
