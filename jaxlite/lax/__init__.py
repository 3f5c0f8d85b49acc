"""lax: the operations programs are made of, strict about shapes and dtypes, as `jax.lax` names them.

One module a family: what an operation means is in the file that defines it, how it is lowered in the file of the
same name in `lowering.rules`.
"""

from jaxlite.lax.elementwise import (
    RoundingMethod, abs, abs_p, acos, acos_p, acosh, acosh_p, add, add_p, and_p, asin, asin_p, asinh, asinh_p,
    atan, atan2, atan2_p, atan_p, atanh, atanh_p, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, cbrt,
    cbrt_p, ceil, ceil_p, clamp, clamp_p, clz, clz_p, complex, complex_p, conj, conj_p, cos, cos_p, cosh,
    cosh_p, div, div_p, eq, eq_p, eq_to_p, exp, exp2, exp2_p, exp_p, expm1, expm1_p, floor, floor_p, ge, ge_p,
    gt, gt_p, imag, imag_p, integer_pow, integer_pow_p, is_finite, is_finite_p, le, le_p, le_to_p, log, log1p,
    log1p_p, log_p, logistic, logistic_p, lt, lt_p, lt_to_p, max, max_p, min, min_p, mul, mul_p, mulhi, mulhi_p,
    ne, ne_p, neg, neg_p, nextafter, nextafter_p, not_p, or_p, population_count, population_count_p, pow, pow_p,
    real, real_p, reciprocal, rem, rem_p, round, round_p, rsqrt, rsqrt_p, select, select_n, select_n_p,
    shift_left, shift_left_p, shift_right_arithmetic, shift_right_arithmetic_p, shift_right_logical,
    shift_right_logical_p, sign, sign_p, sin, sin_p, sinh, sinh_p, sqrt, sqrt_p, square, square_p, sub, sub_p,
    tan, tan_p, tanh, tanh_p, xor_p,
)
from jaxlite.lax.shaping import (
    bitcast_convert_type, bitcast_convert_type_p, broadcast, broadcast_in_dim, broadcast_in_dim_p,
    broadcast_like, broadcast_shapes, broadcast_to_rank, broadcasted_iota, collapse, concatenate, concatenate_p,
    convert_element_type, convert_element_type_p, copy_p, empty, expand_dims, full, full_like, iota, iota_p,
    optimization_barrier, optimization_barrier_p, pad, pad_p, reduce_precision, reduce_precision_p, reshape,
    reshape_p, rev, rev_p, split, split_p, squeeze, squeeze_p, stack, stack_p, stop_gradient, stop_gradient_p,
    tile, tile_p, transpose, transpose_p, unstack, unstack_p,
)
