"""Distillation losses against closed forms, numbers by hand and everything that could happen."""

import math

import pytest
import torch
from torch.testing import assert_close

from tests.memory_peak import memory_peak
from veriloop.pipeline.losses.distillation import (
    TopK,
    forward_kl,
    generalised_jsd,
    jsd_from_hidden,
    reverse_kl,
    token_advantage,
    token_share,
    top_k,
    top_k_from_hidden,
    top_k_kl,
    top_k_kl_from_hidden,
)
from veriloop.pipeline.losses.policy_gradient import policy_gradient
from veriloop.pipeline.model import logprob
from veriloop.pipeline.model.logprob import Head, accumulate_in_place, head_logits

CLOSE = {"atol": 1e-12, "rtol": 1e-12}
P, Q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)  # student and teacher, by hand
FORWARD = 0.2 * math.log(0.2 / 0.5) + 0.2 * math.log(0.2 / 0.3) + 0.6 * math.log(0.6 / 0.2)
REVERSE = 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.2) + 0.2 * math.log(0.2 / 0.6)


def logits(chances):
    return torch.tensor(chances, dtype=torch.float64).log() + 3.7  # softmax is blind to a shift


@pytest.fixture
def two():
    """Logits of a student (with a gradient) and a teacher at three tokens over seven ids."""
    noise = torch.Generator().manual_seed(1)
    student, teacher = (
        2 * torch.randn(3, 7, generator=noise, dtype=torch.float64) for _ in range(2)
    )
    return student.requires_grad_(), teacher


def chances(two, temperature=1.0):
    student, teacher = two
    return (student.detach() / temperature).softmax(-1), (teacher / temperature).softmax(-1)


def test_numbers_by_hand():
    student, teacher = logits(P), logits(Q)
    at = {"temperature": 1.0}
    assert forward_kl(student, teacher, **at).item() == pytest.approx(FORWARD, abs=1e-12)
    assert reverse_kl(student, teacher, **at).item() == pytest.approx(REVERSE, abs=1e-12)
    mixture = [0.25 * q + 0.75 * p for p, q in zip(P, Q, strict=True)]
    of_teacher = sum(q * math.log(q / m) for q, m in zip(Q, mixture, strict=True))
    of_student = sum(p * math.log(p / m) for p, m in zip(P, mixture, strict=True))
    got = generalised_jsd(student, teacher, beta=0.25, **at).item()
    assert got == pytest.approx(0.25 * of_teacher + 0.75 * of_student, abs=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_the_temperature_divides_the_logits_of_both(two, temperature):
    p, q = chances(two, temperature)
    wanted = (q * (q / p).log()).sum(-1), (p * (p / q).log()).sum(-1)
    assert_close(forward_kl(*two, temperature=temperature), wanted[0], **CLOSE)
    assert_close(reverse_kl(*two, temperature=temperature), wanted[1], **CLOSE)
    half = generalised_jsd(*two, beta=0.5, temperature=temperature)
    m = (p + q) / 2
    assert_close(half, ((q * (q / m).log()).sum(-1) + (p * (p / m).log()).sum(-1)) / 2, **CLOSE)


def test_at_high_temperatures_the_gradient_falls_with_the_square_of_the_temperature(two):
    student, _ = two
    low, high = (
        torch.autograd.grad(forward_kl(*two, temperature=t).sum(), student)[0] for t in (1e4, 2e4)
    )
    assert_close(low, 4 * high, rtol=0.02, atol=0)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_gradients_have_their_closed_forms(two, temperature):
    student, _ = two
    p, q = chances(two, temperature)
    (got,) = torch.autograd.grad(forward_kl(*two, temperature=temperature).sum(), student)
    assert_close(got, (p - q) / temperature, **CLOSE)
    (got,) = torch.autograd.grad(reverse_kl(*two, temperature=temperature).sum(), student)
    gap = (p / q).log()
    wanted = p * (gap - (p * gap).sum(-1, keepdim=True)) / temperature
    assert_close(got, wanted, **CLOSE)


def test_the_jsd_lies_between_its_ends_and_becomes_them(two):
    ends = forward_kl(*two, temperature=1.0), reverse_kl(*two, temperature=1.0)
    assert_close(generalised_jsd(*two, beta=0, temperature=1.0), ends[0], atol=0, rtol=0)
    assert_close(generalised_jsd(*two, beta=1, temperature=1.0), ends[1], atol=0, rtol=0)
    near = 1e-7
    low = generalised_jsd(*two, beta=near, temperature=1.0) / near
    high = generalised_jsd(*two, beta=1 - near, temperature=1.0) / near
    assert_close(low, ends[0], atol=1e-4, rtol=1e-4)
    assert_close(high, ends[1], atol=1e-4, rtol=1e-4)
    half = generalised_jsd(*two, beta=0.5, temperature=1.0)
    assert_close(half, generalised_jsd(*two[::-1], beta=0.5, temperature=1.0), **CLOSE)


def test_the_jsd_never_exceeds_the_entropy_of_its_beta():
    far = torch.tensor([40.0, 0.0, -40.0]), torch.tensor([-40.0, 0.0, 40.0])
    got = generalised_jsd(*far, beta=0.3, temperature=1.0).item()
    assert got == pytest.approx(-0.3 * math.log(0.3) - 0.7 * math.log(0.7), abs=1e-6)


@pytest.mark.parametrize("beta", [-0.1, 1.1])
def test_a_beta_outside_its_range_is_refused(two, beta):
    with pytest.raises(ValueError, match=rf"beta must be in \[0, 1\], got {beta}"):
        generalised_jsd(*two, beta=beta, temperature=1.0)


def test_the_sampled_gradient_is_on_average_that_of_the_reverse_kl(two):
    """Every id at every token, weighed by how likely the student is to sample it."""
    student, teacher = two
    logp, logq = student.log_softmax(-1), teacher.log_softmax(-1)
    advantages = token_advantage(logp, logq)
    assert not advantages.requires_grad
    p = logp.detach().exp()
    assert_close(-(p * advantages).sum(-1), reverse_kl(*two, temperature=1.0), **CLOSE)
    surrogate = (p * policy_gradient(logp, advantages)).sum()
    (got,) = torch.autograd.grad(-surrogate, student, retain_graph=True)
    (wanted,) = torch.autograd.grad(reverse_kl(*two, temperature=1.0).sum(), student)
    assert_close(got, wanted, **CLOSE)
    assert wanted.norm() > 0.1
    one = torch.autograd.grad(-policy_gradient(logp, advantages)[:, 2].sum(), student)[0]
    assert (one - wanted).norm() > 0.1  # of one sample it is not


def test_an_advantage_is_how_much_likelier_the_teacher_finds_the_token():
    got = token_advantage(torch.tensor([-2.0, -1.0]), torch.tensor([-0.5, -4.0]))
    assert got.tolist() == [1.5, -3.0]


def test_the_top_ids_are_kept_with_the_mass_of_the_rest(two):
    _, teacher = two
    kept = top_k(teacher, 2, temperature=1.7)
    q = (teacher / 1.7).softmax(-1)
    best, ids = q.sort(-1, descending=True)
    assert kept.ids_XK.tolist() == ids[:, :2].tolist()
    assert_close(kept.logq_XK, best[:, :2].log(), **CLOSE)
    assert_close(kept.rest_X, best[:, 2:].sum(-1).log(), **CLOSE)


def test_a_rest_too_small_for_a_difference_keeps_its_digits():
    kept = top_k(torch.tensor([30.0, 0.0, 0.0]), 1, temperature=1.0)
    assert kept.rest_X.item() == pytest.approx(math.log(2) - 30, abs=1e-5)  # 1 - q would be 0


@pytest.mark.parametrize("k", [0, 7, 8])
def test_a_k_that_leaves_nothing_on_one_side_is_refused(two, k):
    with pytest.raises(ValueError, match=f"between 1 and 6, below the vocabulary, got {k}"):
        top_k(two[1], k, temperature=1.0)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_bucketed_kl_counts_all_other_ids_as_one(two, temperature):
    p, q = chances(two, temperature)
    kept = top_k(two[1], 3, temperature=temperature)
    inside = torch.zeros(3, 7, dtype=torch.bool).scatter(-1, kept.ids_XK, True)
    s, r = (x.masked_fill(inside, 0).sum(-1) for x in (p, q))
    wanted = (q * (q / p).log()).masked_fill(~inside, 0).sum(-1) + r * (r / s).log()
    assert_close(top_k_kl(two[0], kept, temperature=temperature), wanted, **CLOSE)
    apart = q.masked_fill(inside, 0) / r[:, None], p.masked_fill(inside, 0) / s[:, None]
    missing = r * (apart[0] * (apart[0] / apart[1]).log()).nan_to_num().sum(-1)
    whole = forward_kl(*two, temperature=temperature)
    assert_close(wanted + missing, whole, **CLOSE)
    assert (missing > 0.001).all()  # a lower bound, and not an idle one


def test_the_bucketed_kl_teaches_the_kept_ids_and_the_mass_of_the_rest(two):
    student, teacher = two
    p, q = chances(two)
    kept = top_k(teacher, 3, temperature=1.0)
    (got,) = torch.autograd.grad(top_k_kl(student, kept, temperature=1.0).sum(), student)
    inside = torch.zeros(3, 7, dtype=torch.bool).scatter(-1, kept.ids_XK, True)
    s, r = (x.masked_fill(inside, 0).sum(-1, keepdim=True) for x in (p, q))
    assert_close(got, torch.where(inside, p - q, p * (1 - r / s)), **CLOSE)


def test_tokens_may_have_any_leading_shape(two):
    student, teacher = two
    kept = top_k(teacher, 3, temperature=1.0)
    wanted = top_k_kl(student, kept, temperature=1.0)
    one = top_k(teacher[1], 3, temperature=1.0)
    assert_close(top_k_kl(student[1], one, temperature=1.0), wanted[1], **CLOSE)
    more = top_k(teacher[:, None].expand(3, 2, 7), 3, temperature=1.0)
    got = top_k_kl(student[:, None].expand(3, 2, 7), more, temperature=1.0)
    assert_close(got, wanted[:, None].expand(3, 2), **CLOSE)
    for loss in (forward_kl, reverse_kl):
        wide = loss(student[:, None].expand(3, 2, 7), teacher[:, None], temperature=1.0)
        assert_close(wide[:, 1], loss(*two, temperature=1.0), **CLOSE)


def test_half_precision_logits_are_read_in_float32():
    student, teacher = (torch.tensor([[1.0, 2.5, -3.0]], dtype=torch.bfloat16) * x for x in (1, 2))
    kept = top_k(teacher, 1, temperature=1.0)
    for got in (
        forward_kl(student, teacher, temperature=1.0),
        top_k_kl(student, kept, temperature=1.0),
    ):
        assert got.dtype == torch.float32
    wide = forward_kl(student.float(), teacher.float(), temperature=1.0)
    assert_close(forward_kl(student, teacher, temperature=1.0), wide, atol=0, rtol=0)


def test_shares_of_any_split_add_up():
    values = torch.tensor([1.0, 2.0, 4.0, 8.0])
    parts = [token_share(part, 5) for part in (values[:1], values[1:], values[:0])]
    assert [part.item() for part in parts] == pytest.approx([0.2, 2.8, 0.0])
    assert token_share(values[:0], 0).item() == 0
    assert token_share(values, 4).item() == 3.75
    assert token_share(values[3:], 1).item() == 8
    with pytest.raises(ValueError, match="4 tokens, its whole step 3"):
        token_share(values, 3)


@pytest.fixture
def heads():
    """Hidden states of five tokens, widths 4 and 6, and heads of 9 and 11 ids, one with a bias."""
    noise = torch.Generator().manual_seed(2)

    def random(*shape):
        return torch.randn(*shape, generator=noise, dtype=torch.float64)

    student = random(5, 4).requires_grad_(), random(9, 4).requires_grad_()
    return student, random(9).requires_grad_(), (random(5, 6), random(11, 6))


def gradients(values, heads):
    (hidden, weight), bias, _ = heads
    weighing = torch.arange(1.0, 6.0, dtype=torch.float64)
    return torch.autograd.grad((values * weighing).sum(), (hidden, weight, bias), retain_graph=True)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
@pytest.mark.parametrize("beta", [0, 0.4, 1])
def test_chunks_change_neither_the_jsd_nor_its_gradient(heads, chunk, beta):
    (hidden, weight), bias, (theirs, their_weight) = heads
    student, teacher = hidden @ weight.T + bias, (theirs @ their_weight.T)[:, :9]
    wanted = generalised_jsd(student, teacher, beta=beta, temperature=1.3)
    for head in (their_weight, their_weight[:9]):  # rows beyond the student's are not read
        got = jsd_from_hidden(
            hidden, (weight, bias), theirs, (head, None), beta=beta, temperature=1.3, chunk=chunk
        )
        assert_close(got, wanted, **CLOSE)
        for one, other in zip(gradients(got, heads), gradients(wanted, heads), strict=True):
            assert_close(one, other, **CLOSE)
    turned = jsd_from_hidden(
        theirs, (their_weight, None), hidden, (weight, bias), beta=beta, temperature=1.3, chunk=2
    )
    assert_close(turned, generalised_jsd(teacher, student, beta=beta, temperature=1.3), **CLOSE)


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks_change_neither_the_bucketed_kl_nor_its_gradient(heads, chunk):
    (hidden, weight), bias, (theirs, their_weight) = heads
    kept = top_k((theirs @ their_weight.T)[:, :9], 4, temperature=1.3)
    wanted = top_k_kl(hidden @ weight.T + bias, kept, temperature=1.3)
    got = top_k_kl_from_hidden(hidden, (weight, bias), kept, temperature=1.3, chunk=chunk)
    assert_close(got, wanted, **CLOSE)
    for one, other in zip(gradients(got, heads), gradients(wanted, heads), strict=True):
        assert_close(one, other, **CLOSE)


@pytest.fixture
def of_three(monkeypatch):
    """The vocabulary is read three ids at a time."""
    monkeypatch.setattr(logprob, "TILE", 3)


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 0.0), (0.7, 0.0), (1.5, 2.0)])
@pytest.mark.parametrize("beta", [0, 0.4, 1])
def test_tiles_of_the_vocabulary_change_neither_the_jsd_nor_its_gradient(
    heads, of_three, beta, scale, cap
):
    (hidden, weight), bias, (theirs, their_weight) = heads
    student = head_logits(hidden, weight, bias, scale, cap)
    teacher = head_logits(theirs, their_weight, None, 1.2, 3.0)[:, :9]
    wanted = generalised_jsd(student, teacher, beta=beta, temperature=1.3)
    own, other = Head(weight, bias, scale, cap), Head(their_weight, None, 1.2, 3.0)
    got = jsd_from_hidden(hidden, own, theirs, other, beta=beta, temperature=1.3, chunk=2)
    assert_close(got, wanted, **CLOSE)
    for one, two in zip(gradients(got, heads), gradients(wanted, heads), strict=True):
        assert_close(one, two, **CLOSE)
    fewer = jsd_from_hidden(theirs, other, hidden, own, beta=beta, temperature=1.3, chunk=2)
    assert_close(fewer, generalised_jsd(teacher, student, beta=beta, temperature=1.3), **CLOSE)


@pytest.mark.parametrize(("scale", "cap"), [(1.0, 0.0), (0.7, 0.0), (1.5, 2.0)])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_tiles_of_the_vocabulary_change_neither_the_bucketed_kl_nor_its_gradient(
    heads, of_three, k, scale, cap
):
    (hidden, weight), bias, (theirs, their_weight) = heads
    teacher = head_logits(theirs, their_weight, None, 1.2, 3.0)[:, :9]
    kept = top_k(teacher, k, temperature=1.3)
    theirs_kept = top_k_from_hidden(
        theirs, Head(their_weight, None, 1.2, 3.0), k, ids=9, temperature=1.3, chunk=2
    )
    assert torch.equal(theirs_kept.ids_XK, kept.ids_XK)
    assert_close(theirs_kept.logq_XK, kept.logq_XK, **CLOSE)
    assert_close(theirs_kept.rest_X, kept.rest_X, **CLOSE)
    wanted = top_k_kl(head_logits(hidden, weight, bias, scale, cap), kept, temperature=1.3)
    head = Head(weight, bias, scale, cap)
    got = top_k_kl_from_hidden(hidden, head, kept, temperature=1.3, chunk=2)
    assert_close(got, wanted, **CLOSE)
    for one, two in zip(gradients(got, heads), gradients(wanted, heads), strict=True):
        assert_close(one, two, **CLOSE)


@pytest.mark.parametrize("beta", [0, 0.4, 1])
def test_tiles_of_half_precision_are_summed_in_float32(heads, of_three, beta):
    """The products are rounded; what is computed from them is as of float32 logits."""
    (hidden, weight), _, (theirs, their_weight) = (
        [x.detach().bfloat16() for x in part] if isinstance(part, tuple) else part for part in heads
    )
    hidden.requires_grad_()
    student, teacher = (hidden @ weight.T).float(), (theirs @ their_weight.T)[:, :9].float()
    kept = top_k(teacher, 4, temperature=1.3)
    divergences = [
        (
            jsd_from_hidden(
                hidden, (weight, None), theirs, (their_weight, None),
                beta=beta, temperature=1.3, chunk=2,
            ),
            generalised_jsd(student, teacher, beta=beta, temperature=1.3),
        ),
        (
            top_k_kl_from_hidden(hidden, (weight, None), kept, temperature=1.3, chunk=2),
            top_k_kl(student, kept, temperature=1.3),
        ),
    ]  # fmt: skip
    for got, wanted in divergences:
        assert got.dtype == torch.float32
        assert_close(got, wanted, atol=1e-5, rtol=1e-5)
        slopes = [torch.autograd.grad(x.sum(), hidden, retain_graph=True)[0] for x in (got, wanted)]
        assert slopes[0].dtype == torch.bfloat16
        assert_close(*slopes, atol=2e-2, rtol=2e-2)


def test_a_beta_or_k_outside_its_range_is_refused_with_tiles_too(heads):
    (hidden, weight), bias, (theirs, their_weight) = heads
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\], got 1.5"):
        jsd_from_hidden(
            hidden, (weight, bias), theirs, (their_weight, None),
            beta=1.5, temperature=1.0, chunk=2,
        )  # fmt: skip
    with pytest.raises(ValueError, match="k must be between 1 and 8, below the vocabulary, got 9"):
        top_k_from_hidden(theirs, (their_weight, None), 9, ids=9, temperature=1.0, chunk=2)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["jsd", "bucketed KL", "top k"])
def test_memory_does_not_grow_with_the_vocabulary(loss):
    """More than a few tiles, and less than the logits of a chunk, which take 32 MB."""
    tokens, width, ids = 256, 8, 2**15

    def work():
        hidden, weight = torch.randn(tokens, width), torch.randn(ids, width)
        kept = top_k_from_hidden(hidden, (weight, None), 4, ids=ids, temperature=1.0, chunk=tokens)
        if loss == "top k":
            return
        accumulate_in_place(weight.requires_grad_())
        head = weight, None
        if loss == "jsd":
            teacher = hidden.clone(), (weight.detach(), None)
            values = jsd_from_hidden(
                hidden, head, *teacher, beta=0.5, temperature=1.0, chunk=tokens
            )
        else:
            values = top_k_kl_from_hidden(hidden, head, kept, temperature=1.0, chunk=tokens)
        values.sum().backward()

    weights = 4 * ids * width
    tile = 4 * tokens * logprob.TILE
    assert memory_peak(work) < 2 * weights + 7 * tile < 4 * tokens * ids


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks_change_nothing_that_is_kept_of_a_teacher(heads, chunk):
    (hidden, weight), bias, (theirs, their_weight) = heads
    got = top_k_from_hidden(theirs, (their_weight, None), 4, ids=9, temperature=1.3, chunk=chunk)
    wanted = top_k((theirs @ their_weight.T)[:, :9], 4, temperature=1.3)
    assert torch.equal(got.ids_XK, wanted.ids_XK)
    assert_close(got.logq_XK, wanted.logq_XK, **CLOSE)
    assert_close(got.rest_X, wanted.rest_X, **CLOSE)
    own = top_k_from_hidden(hidden, (weight, bias), 4, ids=8, temperature=1.0, chunk=chunk)
    assert not own.logq_XK.requires_grad and not own.rest_X.requires_grad
    wanted = top_k((hidden @ weight.T + bias)[:, :8], 4, temperature=1.0)
    assert_close(own.rest_X, wanted.rest_X.detach(), **CLOSE)


def test_no_logits_are_kept_for_the_backward_pass(heads):
    (hidden, weight), bias, (theirs, their_weight) = heads
    kept_sizes = []

    def note(tensor):
        kept_sizes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        jsd_from_hidden(
            hidden,
            (weight, bias),
            theirs,
            (their_weight, None),
            beta=0.5,
            temperature=1.0,
            chunk=2,
        )
    assert not any(shape[-1:] == (9,) and len(shape) == 2 for shape in kept_sizes)


def test_a_step_without_tokens_has_a_gradient_of_0(heads):
    (hidden, weight), bias, (theirs, their_weight) = heads
    got = jsd_from_hidden(
        hidden[:0],
        (weight, bias),
        theirs[:0],
        (their_weight, None),
        beta=0.5,
        temperature=1.0,
        chunk=2,
    )
    assert got.shape == (0,)
    assert torch.autograd.grad(token_share(got, 0), weight)[0].abs().max() == 0


@pytest.mark.parametrize("chunk", [0, -3])
def test_a_chunk_below_one_token_is_refused(heads, chunk):
    (hidden, weight), bias, _ = heads
    kept = TopK(
        ids_XK=torch.zeros(5, 1, dtype=torch.int64),
        logq_XK=torch.zeros(5, 1),
        rest_X=torch.zeros(5),
    )
    with pytest.raises(ValueError, match=f"at least 1 token, got {chunk}"):
        top_k_kl_from_hidden(hidden, (weight, bias), kept, temperature=1.0, chunk=chunk)
