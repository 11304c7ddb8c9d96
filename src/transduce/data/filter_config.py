"""Settings of the filters of training pairs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from transduce.settings.sections import section


@section
class FilterConfig:
    """Filters for training pairs.  Pairs with an empty or blank side are always left out."""

    max_length: Annotated[int, Field(ge=1)] = 256
    """Maximum tokens on either side, without BOS and EOS."""
    max_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Maximum ratio of tokens between the sides; 0 for no limit, as for summaries.  For
    translations, 9 is a customary limit against misaligned lines."""
    drop_duplicates: bool = True
    """Keep only the first of identical pairs."""
