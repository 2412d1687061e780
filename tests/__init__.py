"""The tests of rtvi_sync."""

import pytest

# Before any module imports them: their asserts then tell the values.
pytest.register_assert_rewrite("rtvi_sync.testing.contract_rig", "rtvi_sync.testing.transport_contract")
