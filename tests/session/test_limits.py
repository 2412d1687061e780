"""The limits of the end of a session: each step leaves time to the next."""

from __future__ import annotations

import pytest

from rtvi_sync.session import limits

pytestmark = pytest.mark.inside


def test_the_steps_share_the_promise() -> None:
    """Transport, media, handlers and the result end in this order, within the 5 s that `disconnect()` promises."""
    assert limits.TEARDOWN_LIMIT == 5.0
    assert limits.TRANSPORT_SHARE < limits.MEDIA_SHARE < limits.OWN_SHARE < 1.0
    assert 2 * limits.SETTLE_TIMEOUT <= limits.TEARDOWN_LIMIT * (1.0 - limits.TRANSPORT_SHARE)
    assert limits.FUNCTIONS_TIMEOUT < limits.TEARDOWN_LIMIT
    assert limits.SINK_SHARE < limits.MEDIA_SHARE
    assert limits.FLUSH_TIMEOUT < limits.TEARDOWN_LIMIT * limits.MEDIA_SHARE


@pytest.mark.parametrize(("remaining", "sending"), [(5.0, 3.6), (4.0, 3.6), (1.0, 0.9), (0.0, 0.0)])
def test_a_transport_sends_for_a_part_of_its_time(remaining: float, sending: float) -> None:
    """The rest is for closing; a transport that has more time than its share does not use it."""
    assert limits.time_to_send(remaining) == pytest.approx(sending)
