"""`request_id` and `scheduled_tokens`: the rows of one inference request in a batch of several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from probe.settings import SettingsError, Slice

#: Suffix that engines append to the name that the user gave: vLLM since 0.14.
_SUFFIX = re.compile(r"-[0-9a-f]{8}")


def rows_of(request: str, scheduled: Any) -> Slice | None:
    """Returns the rows of a request in dimension 0 of a batch; None if it is not in the batch.

    `scheduled` has the number of tokens of each request, in the order of the batch. Raises SettingsError.
    """
    if not isinstance(scheduled, Mapping) or not all(
        isinstance(name, str) and isinstance(count, int) and count >= 0 for name, count in scheduled.items()
    ):
        raise SettingsError("start: scheduled_tokens is not a dict with the number of tokens of each request, in the order of the batch")
    begin, found = 0, None
    for name, count in scheduled.items():
        if name == request or (name.startswith(request) and _SUFFIX.fullmatch(name[len(request) :])):
            found = begin, begin + count
        begin += count
    if found is None or found[0] == found[1]:
        return None
    return Slice(0, begin, *found)
