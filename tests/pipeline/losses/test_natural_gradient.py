"""Conjugate gradients against a direct solve, and the length of the step by hand."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.natural_gradient import conjugate_gradients, step_length


def system(size, *, seed=0):
    """A symmetric positive definite matrix and a target."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    target = torch.randn(size, generator=generator, dtype=torch.float64)
    return root @ root.T + 0.5 * torch.eye(size, dtype=torch.float64), target


def test_as_many_iterations_as_unknowns_solve_the_system():
    matrix, target = system(6)
    x, quadratic = conjugate_gradients(matrix.mv, target, iterations=6)
    assert_close(x, torch.linalg.solve(matrix, target), atol=1e-6, rtol=1e-6)
    assert quadratic == pytest.approx((x @ matrix @ x).item(), rel=1e-9)


def test_each_iteration_comes_closer_in_the_norm_of_the_matrix():
    matrix, target = system(8, seed=3)
    exact = torch.linalg.solve(matrix, target)
    errors = []
    for iterations in range(1, 9):
        x, quadratic = conjugate_gradients(matrix.mv, target, iterations=iterations)
        errors.append(((x - exact) @ matrix @ (x - exact)).item())
        assert quadratic == pytest.approx((x @ matrix @ x).item(), rel=1e-6)
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.01 and errors[-1] < 1e-8


def test_an_exact_solution_ends_the_iterations():
    products = []

    def double(vector):
        products.append(vector)
        return 2 * vector

    x, quadratic = conjugate_gradients(double, torch.tensor([3.0, -1.0]), iterations=9)
    assert x.tolist() == [1.5, -0.5] and len(products) == 1
    assert quadratic == pytest.approx(2 * (1.5**2 + 0.5**2))


@pytest.mark.parametrize("seed", range(3))
def test_the_quadratic_form_holds_where_rounding_spoils_the_directions(seed):
    """With a condition of 1e4 in float32, x is not orthogonal to the residual any more."""
    noise = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(12, 12, generator=noise, dtype=torch.float64))
    matrix = (basis * torch.logspace(-4, 0, 12, dtype=torch.float64)) @ basis.T
    target = torch.randn(12, generator=noise, dtype=torch.float64).float()
    x, quadratic = conjugate_gradients(matrix.float().mv, target, iterations=10)
    assert quadratic == pytest.approx((x.double() @ matrix @ x.double()).item(), rel=5e-5)


def test_without_a_gradient_nothing_is_multiplied():
    products = []
    conjugate_gradients(lambda v: products.append(v) or v, torch.zeros(3), iterations=2)
    assert not products


def test_no_gradient_and_no_curvature_are_no_direction():
    zero = torch.zeros(3)
    assert conjugate_gradients(lambda v: v, zero, iterations=2) == (pytest.approx([0, 0, 0]), 0.0)
    x, quadratic = conjugate_gradients(lambda v: 0 * v, torch.ones(3), iterations=2)
    assert not x.any() and step_length(quadratic, 0.01) == 0.0


def test_the_length_reaches_the_bound_of_the_quadratic_model():
    """x = (2, 0) and F = diag(8, 1): x . F x = 32, and the KL of length L is 16 L^2."""
    assert step_length(32.0, 0.01) == pytest.approx((0.01 / 16) ** 0.5)
    assert step_length(0.5, 0.01) == pytest.approx(0.2)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
        conjugate_gradients(lambda v: v, torch.ones(2), iterations=0)
    with pytest.raises(ValueError, match="bound must be above 0 nats per token, got 0"):
        step_length(1.0, 0.0)
