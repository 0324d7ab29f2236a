"""Settings that a drafter's own config.json holds, whichever section its maker put them in."""

from collections.abc import Mapping
from typing import Any

from draftsmith.configs.base import ConfigError

SECTIONS = ("dspark_config", "dflash_config")


def find_draft_setting(draft_config: Mapping[str, Any], name: str) -> Any:
    """The value of `name`: in `dspark_config`, `dflash_config`, as `dspark_<name>`, as `name`.

    The first that is there and not null counts; None when none is.
    """
    places = [draft_config.get(section) for section in SECTIONS]
    found = [place.get(name) for place in places if isinstance(place, Mapping)]
    found += [draft_config.get(f"dspark_{name}"), draft_config.get(name)]
    return next((value for value in found if value is not None), None)


def require_same(field: str, asked: object, stored: object) -> None:
    """Refuse an override that contradicts the drafter's config; None on either side agrees."""
    if asked is not None and stored is not None and asked != stored:
        raise ConfigError(
            f"{field}={asked}: the drafter's config has {stored}; accepted: {stored}, or none"
        )
