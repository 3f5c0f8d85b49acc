"""Public names for dtypes: canonical forms, promotion, order, and the types that NumPy lacks."""

from ml_dtypes import bfloat16 as bfloat16

from jaxlite.core.dtypes import TypePromotionError as TypePromotionError
from jaxlite.core.dtypes import canonicalize_dtype as canonicalize_dtype
from jaxlite.core.dtypes import extended as extended
from jaxlite.core.dtypes import finfo as finfo
from jaxlite.core.dtypes import float0 as float0
from jaxlite.core.dtypes import iinfo as iinfo
from jaxlite.core.dtypes import issubdtype as issubdtype
from jaxlite.core.dtypes import itemsize_bits as itemsize_bits
from jaxlite.core.dtypes import prng_key as prng_key
from jaxlite.core.dtypes import result_type as result_type
from jaxlite.core.dtypes import scalar_type_of as scalar_type_of
