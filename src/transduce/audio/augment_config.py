"""Settings of SpecAugment, readable without PyTorch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from transduce.errors import SettingError
from transduce.settings.sections import section

Masks = Annotated[int, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(ge=-120, le=0)]


@section
class SpecAugmentConfig:
    """Random masks over the features of training recordings, and noise added to them."""

    bin_masks: Masks = 2
    """Masks of neighbouring bins; 0 for none."""
    bin_share: Share = 0.2
    """Maximum width of a mask, as a share of the bins."""
    time_masks: Masks = 2
    """Masks of neighbouring frames; 0 for none."""
    time_share: Share = 0.1
    """Maximum width of a mask, as a share of the length of the recording."""
    noise_share: Share = 0.0
    """Share of recordings with added white noise; another random choice in each epoch."""
    noise_levels: tuple[Level, Level] = (-70.0, -30.0)
    """Lowest and highest level of the noise, in decibels below full scale; drawn for each
    recording."""

    def __post_init__(self) -> None:
        low, high = self.noise_levels
        if low > high:
            raise SettingError(
                f"augmentation.noise_levels = [{low:g}, {high:g}]; give the lower level first"
            )
