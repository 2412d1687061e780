"""Mutants of `connect()`: its attempts, candidates and steps."""

from tools.mutants import Module, Mutant

WAYS = "tests/client/test_several_ways.py"
STEPS = "tests/client/test_connect_steps.py"

MODULE = Module(
    "rtvi_sync/client/connect_steps.py",
    (WAYS, "tests/client/test_attempts.py"),
    (
        Mutant(
            "A session whose call was abandoned meanwhile connects.",
            "        if operation.abandoned:  # before it had this session\n            session.end(BY_CLIENT)\n",
            "",
            tests=(f"{STEPS}::test_disconnect_before_there_is_a_session",),
        ),
        Mutant(
            "A silent candidate is not tried again.",
            "                        left_early.append(candidate)\n",
            "                        pass\n",
        ),
        Mutant(
            "Another candidate follows an error that concerns all.",
            "return concerns_candidate(error)",
            "return True",
        ),
        Mutant(
            "No candidate follows.",
            "self._has_next = bool(untried or left_early)",
            "self._has_next = False",
        ),
        Mutant(
            "Devices that no session uses stay open.",
            "                life.media.let_go()\n",
            "                pass\n",
            reason="disconnect() and Ctrl-C, which end a call between two candidates, let them go, too",
        ),
        Mutant(
            "The next candidate gets no devices.",
            "                life.media.take_back()\n",
            "                pass\n",
        ),
        Mutant(
            "A limit that passes ends nothing.",
            "            session.end_and_wait(_end_by(error), linger=EndLimits.LINGER)\n            raise\n",
            "            raise\n",
        ),
        Mutant(
            "The first candidate gets an even share.",
            "(1 / (1 + others) if failures else 2 / 3)",
            "1 / (1 + others)",
            tests=("tests/client/test_shares.py",),
        ),
        Mutant(
            "A lost session is not replaced.",
            "return self._policy is not None and should_retry(self._policy, error)",
            "return False",
            tests=("tests/client/test_reconnect.py::test_a_lost_session_is_replaced",),
        ),
        Mutant(
            "A first connect() is repeated whatever the policy says.",
            "repeats = policy is not None and policy.first_connect",
            "repeats = policy is not None",
            tests=("tests/client/test_reconnect.py::test_the_states_when_it_gives_up",),
        ),
        Mutant(
            "A repeated connect() keeps the client between two attempts.",
            "                    life.release(self)\n",
            "                    pass\n",
            reason="the end of the session has given the client back already, unless there was none",
        ),
    ),
)
