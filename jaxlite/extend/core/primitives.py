"""jaxlite's primitives under JAX's names; each loads its module on first use."""

from __future__ import annotations

import importlib
from typing import Any

from jaxlite.core.missing import missing
from lowering import xla

# Module -> which of its primitives: "name", or "theirs=ours".
_HOMES = {
    "jaxlite.lax.control_flow": "linear_solve_p scan_p while_p",
    "jaxlite.lax.control_flow.cond": "cond_p",
    "jaxlite.lax.convolution": "conv_general_dilated_p",
    "jaxlite.lax.dot": "dot_general_p",
    "jaxlite.lax.elementwise":
        "abs_p acos_p acosh_p add_p and_p asin_p asinh_p atan2_p atan_p atanh_p cbrt_p ceil_p clamp_p clz_p complex_p "
        "conj_p cos_p cosh_p div_p eq_p eq_to_p exp2_p exp_p expm1_p floor_p ge_p gt_p imag_p integer_pow_p "
        "is_finite_p le_p le_to_p log1p_p log2_p log_p logistic_p lt_p lt_to_p max_p min_p mul_p ne_p neg_p nextafter_p "
        "not_p one_minus_square_p or_p polynomial_p population_count_p pow_p real_p rem_p round_p rsqrt_p select_n_p "
        "shift_left_p shift_right_arithmetic_p shift_right_logical_p sign_p sin_p sinh_p sqrt_p square_p sub_p tan_p "
        "tanh_p xor_p",
    "jaxlite.lax.fft": "fft_p",
    "jaxlite.lax.gather_scatter": "gather_p scatter_add_p scatter_max_p scatter_min_p scatter_mul_p scatter_p",
    "jaxlite.lax.linalg":
        "cholesky_p eig_p eigh_p hessenberg_p householder_product_p lu_p qr_p schur_p svd_p triangular_solve_p "
        "tridiagonal_p tridiagonal_solve_p",
    "jaxlite.lax.device_put": "device_put_p",
    "jaxlite.lax.sharding": "sharding_constraint_p",
    "jaxlite.lax.parallel": "all_gather_p all_to_all_p axis_index_p pmax_p pmin_p ppermute_p psum_p",
    "jaxlite.lax.reductions":
        "argmax_p argmin_p reduce_and_p reduce_max_p reduce_min_p reduce_or_p reduce_p reduce_prod_p reduce_sum_p "
        "reduce_xor_p",
    "jaxlite.lax.rng": "rng_bit_generator_p rng_uniform_p",
    "jaxlite.lax.shaping":
        "bitcast_convert_type_p broadcast_in_dim_p concatenate_p convert_element_type_p copy_p iota_p pad_p "
        "reduce_precision_p reshape_p rev_p squeeze_p stop_gradient_p transpose_p",
    "jaxlite.lax.slicing": "dynamic_slice_p dynamic_update_slice_p slice_p",
    "jaxlite.lax.sorting": "approx_top_k_p sort_p top_k_p",
    "jaxlite.lax.special": "bessel_i1e_p digamma_p erf_inv_p erf_p erfc_p lgamma_p polygamma_p zeta_p",
    "jaxlite.lax.special_series": "bessel_i0e_p igamma_grad_a_p igamma_p igammac_p regularized_incomplete_beta_p",
    "jaxlite.lax.tokens": "after_all_p create_token_p",
    "jaxlite.lax.windows":
        "cumlogsumexp_p cummax_p cummin_p cumprod_p cumsum_p reduce_window_max_p reduce_window_min_p reduce_window_p "
        "reduce_window_sum_p select_and_gather_add_p select_and_scatter_add_p select_and_scatter_p",
    "jaxlite.random.gammas": "random_gamma_p",
    "jaxlite.random.prng": "random_bits_p random_fold_in_p random_seed_p random_split_p",
    "jaxlite.random.threefry": "threefry2x32_p",
    "jaxlite.state.primitives": "get_p swap_p",
    "jaxlite.traces.call_rules": "jit_p",
    "jaxlite.traces.custom_rules": "custom_jvp_call_p custom_vjp_call_p custom_lin_p=custom_linear_p",
    "jaxlite.traces.jvp": "add_jaxvals_p=add_any_p",
    "jaxlite.traces.remat_rules": "name_p remat_p=checkpoint_p",
    "jaxlite.extend.core.calls": "call_p closed_call_p",
}
if xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    _HOMES["jaxlite.extend.core.call_primitives"] = "create_call_primitive eval_jaxpr_transpose register_call_primitive_rules"
_found = {theirs: (home, ours or theirs) for home, text in _HOMES.items()
          for theirs, _, ours in (each.partition("=") for each in text.split())}


def __getattr__(name: str) -> Any:
    if name not in _found:
        raise missing(__name__, name)
    home, ours = _found[name]
    value = globals()[name] = getattr(importlib.import_module(home), ours)
    return value


def __dir__() -> list[str]:
    return sorted(_found)
