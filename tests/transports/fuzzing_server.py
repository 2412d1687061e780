"""The fuzzing server of the Autobahn test suite on the loopback interface. A program for Python 2.7.

`python2.7 fuzzing_server.py FOLDER` prints its port, writes its reports to the folder, and ends when its standard input
does.
"""

import os
import sys

import autobahntestsuite.choosereactor  # noqa: F401 - before anything else of Twisted
from autobahntestsuite import fuzzing
from twisted.internet import protocol, reactor, stdio

told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the suite prints a lot


class Lifeline(protocol.Protocol):
    """The standard input of this process."""

    def connectionLost(self, reason):
        if reactor.running:
            reactor.stop()


def listen(factory, context):
    """Listen as the suite does, but on a free port, and nowhere but here."""
    factory.externalPort = reactor.listenTCP(0, factory, interface="127.0.0.1").getHost().port
    told.write(str(factory.externalPort) + "\n")
    told.flush()


fuzzing.listenWS = listen
fuzzing.startServer({"url": "ws://127.0.0.1:9", "outdir": sys.argv[1], "cases": ["*"]}, 0)
stdio.StandardIO(Lifeline())
reactor.run()
